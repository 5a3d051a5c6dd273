"""Tensors by the names that Hugging Face and fairseq share, and by ours.

Their sines fill the first half of a token's channels and their cosines the second, where ours take turns; so
channels change places, and nothing else does.
"""

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from nmt_cli.errors import UserError
from nmt_cli.model.config import ModelConfig

OWN, CROSS = "self_attn", "encoder_attn"
INWARD = {
    "attention.query_key_value": [f"{OWN}.{part}_proj" for part in "qkv"],
    "cross.query": [f"{CROSS}.q_proj"],
    "cross.key_value": [f"{CROSS}.{part}_proj" for part in "kv"],
    "feed_forward.inner": ["fc1"],
}
"""What takes a token's channels; several of theirs are one of ours."""

OUTWARD = {
    "attention.output": f"{OWN}.out_proj",
    "cross.output": f"{CROSS}.out_proj",
    "feed_forward.outer": "fc2",
    "after_attention.norm": f"{OWN}_layer_norm",
    "after_cross.norm": f"{CROSS}_layer_norm",
    "after_feed_forward.norm": "final_layer_norm",
}
"""What gives a token's channels, norms among them."""

SSRU = {"attention.value": "ssru.value", "attention.forget": "ssru.forget"}
"""What takes a token's channels and gives them, in the place of a decoder's self-attention."""

UNBIASED = "attention.value"

SOURCE, TARGET = "encoder.embed_tokens.weight", "decoder.embed_tokens.weight"
OUTPUT, BIAS = "output.weight", "output.bias"
POSITIONS = {"source_embedding": "encoder.embed_positions", "target_embedding": "decoder.embed_positions"}


class Usual:
    """Tensors of another toolkit, taken one by one, so that those nobody asked for can be told."""

    def __init__(self, tensors: Mapping[str, Tensor], where: str) -> None:
        """`where` names the file in what is told."""
        self._tensors, self._where = tensors, where
        self._taken: set[str] = set()

    def __contains__(self, name: str) -> bool:
        return name in self._tensors

    def take(self, name: str, *shape: int) -> Tensor:
        """A tensor, in fp32; `UserError` where it is missing or of another shape."""
        if name not in self._tensors:
            raise UserError(f"{self._where} has no {name}, so it is no model that nmt knows.")
        self._taken.add(name)
        tensor = self._tensors[name].detach().float()
        if tuple(tensor.shape) != shape:
            raise UserError(f"{self._where}: {name} is {list(tensor.shape)}, not {list(shape)}.")
        if not tensor.isfinite().all():
            raise UserError(f"{self._where}: {name} holds values that are no finite numbers.")
        return tensor

    def refuse_rest(self) -> None:
        """`UserError` where something was not taken."""
        if left := sorted(self._tensors.keys() - self._taken):
            raise UserError(
                f"{self._where} has {left[0]}, which the Transformer of nmt has no place for; "
                "it is another kind of model."
            )


def turns(width: int) -> Tensor:
    """Where each of our channels is among theirs."""
    return torch.arange(width).view(2, width // 2).T.flatten()


def halves(rows: Tensor) -> Tensor:
    """[N, D] with channels in their order."""
    return rows[:, turns(rows.shape[1]).argsort()].contiguous()


def ours(usual: Usual, config: ModelConfig, source: int, target: int) -> dict[str, Tensor]:
    """Our tensors by name, for vocabularies of such sizes."""
    order = turns(config.width)
    made: dict[str, Tensor] = {}
    output = usual.take(OUTPUT, target, config.width)
    made["output_matrix"] = output[:, order]
    if config.output_bias:
        made["output_bias"] = usual.take(BIAS, target)
    if config.tie != "all":
        made["source_embedding.matrix"] = usual.take(SOURCE, source, config.width)[:, order]
    if config.tie == "none":
        made["target_embedding.matrix"] = usual.take(TARGET, target, config.width)[:, order]
    if config.positions == "learned":
        for place, name in POSITIONS.items():
            made[f"{place}.positions.table"] = usual.take(f"{name}.weight", config.longest, config.width)[
                :, order
            ]
    for stack, number, place, kind in _places(config):
        made[f"{stack}.{number}.{place}.{kind}"] = _ours(
            usual, config, f"{stack}.layers.{number}", place, kind
        )
    for stack in ("encoder", "decoder") if config.norm == "pre" else ():
        for kind in ("weight", "bias"):
            made[f"{stack}_norm.{kind}"] = usual.take(f"{stack}.layer_norm.{kind}", config.width)[order]
    return {name: tensor.contiguous() for name, tensor in made.items()}


def theirs(tensors: Mapping[str, Tensor], config: ModelConfig, *, halves: bool = True) -> dict[str, Tensor]:
    """The inverse of `ours`: tensors by the usual names, biases of attention always among them.

    Not `halves`: channels stay where they are, for toolkits that take any table of positions.
    """
    back = turns(config.width).argsort() if halves else torch.arange(config.width)
    output = tensors["output_matrix"]
    target = tensors.get("target_embedding.matrix", output)
    made = {OUTPUT: output[:, back], TARGET: target[:, back]}
    made[SOURCE] = tensors.get("source_embedding.matrix", target)[:, back]
    if "output_bias" in tensors:
        made[BIAS] = tensors["output_bias"]
    if config.positions == "learned":
        for place, name in POSITIONS.items():
            made[f"{name}.weight"] = tensors[f"{place}.positions.table"][:, back]
    for stack, number, place, kind in _places(config):
        ours = tensors[f"{stack}.{number}.{place}.{kind}"]
        prefix = f"{stack}.layers.{number}"
        if outward := (OUTWARD | SSRU).get(place):
            square = place in SSRU and kind == "weight"
            made[f"{prefix}.{outward}.{kind}"] = ours[back][:, back] if square else ours[back]
            continue
        parts = INWARD[place]
        for part, rows in zip(parts, torch.split(ours, _rows(config, place)), strict=True):
            made[f"{prefix}.{part}.{kind}"] = rows[:, back] if kind == "weight" else rows
    for name in [name for name in made if "_proj.weight" in name]:
        made.setdefault(name.replace(".weight", ".bias"), made[name].new_zeros(len(made[name])))
    for stack in ("encoder", "decoder") if config.norm == "pre" else ():
        for kind in ("weight", "bias"):
            made[f"{stack}.layer_norm.{kind}"] = tensors[f"{stack}_norm.{kind}"][back]
    return {name: tensor.detach().contiguous() for name, tensor in made.items()}


def attention_bias(tensors: Mapping[str, Tensor]) -> bool:
    """Whether any of the biases of attention is more than zeros."""
    return any(bool(each.any()) for name, each in tensors.items() if name.endswith("_proj.bias"))


def _places(config: ModelConfig) -> Iterator[tuple[str, int, str, str]]:
    """Stack, layer, place in it, and weight or bias, of all that there is in the layers."""
    for stack, layers in (("encoder", config.encoder_layers), ("decoder", config.decoder_layers)):
        places = [place for place in (*INWARD, *OUTWARD) if stack == "decoder" or "cross" not in place]
        if stack == "decoder" and config.decoder_history == "ssru":
            places = [*SSRU, *(place for place in places if not place.startswith("attention"))]
        for number in range(layers):
            for place in places:
                attends = place.startswith(("attention", "cross")) and place not in SSRU
                bare = place == UNBIASED or (attends and not config.attention_bias)
                yield from ((stack, number, place, kind) for kind in (["weight"] if bare else BOTH))


BOTH = ["weight", "bias"]


def _rows(config: ModelConfig, place: str) -> list[int]:
    """How many rows each of the parts has that are one of our matrices."""
    keys, values = config.heads * config.d_k, config.heads * config.d_v
    rows = {"q": keys, "k": keys, "v": values}
    return [rows[part[-6]] if "_proj" in part else config.feed_forward for part in INWARD[place]]


def _ours(usual: Usual, config: ModelConfig, prefix: str, place: str, kind: str) -> Tensor:
    order, width = turns(config.width), config.width
    if place in SSRU:
        square = usual.take(
            f"{prefix}.{SSRU[place]}.{kind}", *((width, width) if kind == "weight" else (width,))
        )
        return square[order][:, order] if kind == "weight" else square[order]
    if place in OUTWARD:
        inner = config.feed_forward if "feed_forward.outer" in place else config.heads * config.d_v
        matrix = kind == "weight" and not place.endswith("norm")
        shape = (width, inner) if matrix else (width,)
        return usual.take(f"{prefix}.{OUTWARD[place]}.{kind}", *shape)[order]
    sizes = zip(INWARD[place], _rows(config, place), strict=True)
    if kind == "bias":
        return torch.cat([usual.take(f"{prefix}.{part}.bias", rows) for part, rows in sizes])
    return torch.cat([usual.take(f"{prefix}.{part}.weight", rows, width)[:, order] for part, rows in sizes])
