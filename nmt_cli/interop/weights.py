"""Tensors by the names that Hugging Face and fairseq share, and by ours.

Their sines fill the first half of a token's channels and their cosines the second, where ours take turns; so
channels change places, and nothing else does.
"""

from collections.abc import Callable, Iterator, Mapping

import torch
from torch import Tensor

from nmt_cli.checkpoints.model_folder import REAL
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


MOST_ROWS = 1 << 24  # no vocabulary has more entries


def renamed(
    tensors: Mapping[str, Tensor],
    usual_names: Callable[[Mapping[str, Tensor]], dict[str, Tensor]],
    where: str,
) -> dict[str, Tensor]:
    """Return tensors by their usual names. `UserError` names the first that no model of `where` can have.

    Each must be a vector or matrix of real numbers: not integers, quantised, complex or sparse, nor a view
    that repeats a few numbers. Embeddings and the output projection must be matrices.
    """
    for name, tensor in tensors.items():
        dense = tensor.layout is torch.strided and tensor.device.type == "cpu"
        if not dense or tensor.dtype not in REAL:
            kind = str(tensor.dtype if dense else tensor.layout).removeprefix("torch.")
            raise UserError(
                f"{where}: {name} is {kind}, but nmt import takes fp32, fp16, bf16 and fp64 only."
            )
        if tensor.dim() not in (1, 2) or tensor.nbytes > tensor.untyped_storage().nbytes():
            raise UserError(
                f"{where}: {name} is {list(tensor.shape)}, not a vector or matrix; copy it again."
            )
    made = usual_names(tensors)
    if OUTPUT not in made:
        raise UserError(f"{where} has no output projection, so it is no model that nmt knows.")
    for name in (OUTPUT, SOURCE, TARGET):
        if name in made and (made[name].dim() != 2 or len(made[name]) > MOST_ROWS):
            raise UserError(f"{where}: {name} is {list(made[name].shape)}, not a matrix of embeddings.")
    return made


class Usual:
    """Tensors by their usual names, taken one by one, so that `refuse_rest` finds the others."""

    def __init__(self, tensors: Mapping[str, Tensor], where: str) -> None:
        """Error messages name the file `where`."""
        self._tensors, self._where = tensors, where
        self._taken: set[str] = set()

    def take(self, name: str, *shape: int) -> Tensor:
        """Return a tensor in fp32. `UserError` if it is missing, of another shape, or not finite."""
        if name not in self._tensors:
            raise UserError(f"{self._where} has no {name}, so it is no model that nmt knows.")
        self._taken.add(name)
        tensor = self._tensors[name].detach()
        if tuple(tensor.shape) != shape:
            raise UserError(f"{self._where}: {name} is {list(tensor.shape)}, not {list(shape)}.")
        tensor = tensor.float()
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


def without_zero_biases(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors without the output bias, and without all biases of attention, if they are zeros."""
    attention = [name for name in tensors if name.endswith("_proj.bias")]
    zero = set() if any(tensors[name].any() for name in attention) else {*attention}
    zero |= {BIAS} if BIAS in tensors and not tensors[BIAS].any() else set()
    return {name: tensor for name, tensor in tensors.items() if name not in zero}


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
