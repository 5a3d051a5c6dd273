"""Convert between our tensors and those of other toolkits.

Hugging Face and fairseq share names for tensors, the common names. In their sinusoids, sines fill the first
half of the channels and cosines the second half. In ours, sines and cosines alternate. The conversion
reorders the channels.
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
"""Modules that read a token's channels. Each of ours combines one or more modules of other toolkits."""

OUTWARD = {
    "attention.output": f"{OWN}.out_proj",
    "cross.output": f"{CROSS}.out_proj",
    "feed_forward.outer": "fc2",
    "after_attention.norm": f"{OWN}_layer_norm",
    "after_cross.norm": f"{CROSS}_layer_norm",
    "after_feed_forward.norm": "final_layer_norm",
}
"""Modules that write a token's channels, including norms."""

SSRU = {"attention.value": "ssru.value", "attention.forget": "ssru.forget"}
"""Modules of an SSRU, the decoder's substitute for self-attention. They read and write a token's channels."""

UNBIASED = "attention.value"

SOURCE, TARGET = "encoder.embed_tokens.weight", "decoder.embed_tokens.weight"
OUTPUT, BIAS = "output.weight", "output.bias"
POSITIONS = {"source_embedding": "encoder.embed_positions", "target_embedding": "decoder.embed_positions"}

MAX_ROWS = 1 << 24  # no vocabulary has more entries


def common_tensors(
    tensors: Mapping[str, Tensor],
    rename: Callable[[Mapping[str, Tensor]], dict[str, Tensor]],
    where: str,
) -> dict[str, Tensor]:
    """Return the tensors under their common names, which `rename` gives them.

    Raise `UserError` for the first tensor that is not a dense vector or matrix of real numbers. Views that
    repeat numbers are also refused. The output projection must exist. It and the embeddings must be matrices
    with at most `MAX_ROWS` rows. Errors name the file `where`.
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
                f"{where}: {name} is {list(tensor.shape)}, not a vector or matrix. Copy it again."
            )
    tensors_by_name = rename(tensors)
    if OUTPUT not in tensors_by_name:
        raise UserError(f"{where} has no output projection, so nmt does not support this model.")
    for name in (OUTPUT, SOURCE, TARGET):
        if name in tensors_by_name and (
            tensors_by_name[name].dim() != 2 or len(tensors_by_name[name]) > MAX_ROWS
        ):
            raise UserError(
                f"{where}: {name} is {list(tensors_by_name[name].shape)}, not a matrix of embeddings."
            )
    return tensors_by_name


class TensorReader:
    """Read tensors by their common names one by one, and remember which were read."""

    def __init__(self, tensors: Mapping[str, Tensor], where: str) -> None:
        """Keep the tensors by name. Error messages name the file `where`."""
        self._tensors, self._where = tensors, where
        self._taken: set[str] = set()

    def take(self, name: str, *shape: int) -> Tensor:
        """Return a tensor in fp32. Raise `UserError` if it is missing, not finite, or not of `shape`."""
        if name not in self._tensors:
            raise UserError(f"{self._where} has no {name}, so nmt does not support this model.")
        self._taken.add(name)
        tensor = self._tensors[name].detach()
        if tuple(tensor.shape) != shape:
            raise UserError(f"{self._where}: {name} is {list(tensor.shape)}, not {list(shape)}.")
        tensor = tensor.float()
        if not tensor.isfinite().all():
            raise UserError(f"{self._where}: {name} has values that are not finite.")
        return tensor

    def refuse_rest(self) -> None:
        """Raise `UserError` if `take` has not read every tensor."""
        if left := sorted(self._tensors.keys() - self._taken):
            raise UserError(
                f"{self._where} has {left[0]}, which nmt's Transformer lacks. It is another kind of model."
            )


def channel_order(width: int) -> Tensor:
    """Return `[width]` indices: item i is the other toolkits' channel that becomes our channel i."""
    return torch.arange(width).view(2, width // 2).T.flatten()


def to_halves(rows: Tensor) -> Tensor:
    """Return a copy of `rows`, `[n, width]`, with channels in the other toolkits' order."""
    return rows[:, channel_order(rows.shape[1]).argsort()].contiguous()


def import_tensors(reader: TensorReader, config: ModelConfig, source: int, target: int) -> dict[str, Tensor]:
    """Return our tensors by name, for vocabularies of `source` and `target` entries. `reader` checks them."""
    order = channel_order(config.width)
    tensors_by_name: dict[str, Tensor] = {}
    output = reader.take(OUTPUT, target, config.width)
    tensors_by_name["output_matrix"] = output[:, order]
    if config.output_bias:
        tensors_by_name["output_bias"] = reader.take(BIAS, target)
    if config.tie != "all":
        tensors_by_name["source_embedding.matrix"] = reader.take(SOURCE, source, config.width)[:, order]
    if config.tie == "none":
        tensors_by_name["target_embedding.matrix"] = reader.take(TARGET, target, config.width)[:, order]
    if config.positions == "learned":
        for module, name in POSITIONS.items():
            tensors_by_name[f"{module}.positions.table"] = reader.take(
                f"{name}.weight", config.longest, config.width
            )[:, order]
    for stack, number, module, kind in _layer_parameters(config):
        tensors_by_name[f"{stack}.{number}.{module}.{kind}"] = _import_parameter(
            reader, config, f"{stack}.layers.{number}", module, kind
        )
    for stack in ("encoder", "decoder") if config.norm == "pre" else ():
        for kind in ("weight", "bias"):
            tensors_by_name[f"{stack}_norm.{kind}"] = reader.take(f"{stack}.layer_norm.{kind}", config.width)[
                order
            ]
    return {name: tensor.contiguous() for name, tensor in tensors_by_name.items()}


def export_tensors(tensors: Mapping[str, Tensor], config: ModelConfig) -> dict[str, Tensor]:
    """Return our `tensors` under their common names, with channels in the other toolkits' order.

    Source and target embeddings are always present, even if tied. Attention always gets biases, zeros if the
    model has none.
    """
    back = channel_order(config.width).argsort()
    output = tensors["output_matrix"]
    target = tensors.get("target_embedding.matrix", output)
    tensors_by_name = {OUTPUT: output[:, back], TARGET: target[:, back]}
    tensors_by_name[SOURCE] = tensors.get("source_embedding.matrix", target)[:, back]
    if "output_bias" in tensors:
        tensors_by_name[BIAS] = tensors["output_bias"]
    if config.positions == "learned":
        for module, name in POSITIONS.items():
            tensors_by_name[f"{name}.weight"] = tensors[f"{module}.positions.table"][:, back]
    for stack, number, module, kind in _layer_parameters(config):
        ours = tensors[f"{stack}.{number}.{module}.{kind}"]
        prefix = f"{stack}.layers.{number}"
        if outward := (OUTWARD | SSRU).get(module):
            square = module in SSRU and kind == "weight"
            tensors_by_name[f"{prefix}.{outward}.{kind}"] = ours[back][:, back] if square else ours[back]
            continue
        parts = INWARD[module]
        for part, rows in zip(parts, torch.split(ours, _part_rows(config, module)), strict=True):
            tensors_by_name[f"{prefix}.{part}.{kind}"] = rows[:, back] if kind == "weight" else rows
    for name in [name for name in tensors_by_name if "_proj.weight" in name]:
        tensors_by_name.setdefault(
            name.replace(".weight", ".bias"), tensors_by_name[name].new_zeros(len(tensors_by_name[name]))
        )
    for stack in ("encoder", "decoder") if config.norm == "pre" else ():
        for kind in ("weight", "bias"):
            tensors_by_name[f"{stack}.layer_norm.{kind}"] = tensors[f"{stack}_norm.{kind}"][back]
    return {name: tensor.detach().contiguous() for name, tensor in tensors_by_name.items()}


def without_zero_biases(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors without a zero output bias, and without attention biases if all are zero."""
    attention = [name for name in tensors if name.endswith("_proj.bias")]
    zero = set() if any(tensors[name].any() for name in attention) else {*attention}
    zero |= {BIAS} if BIAS in tensors and not tensors[BIAS].any() else set()
    return {name: tensor for name, tensor in tensors.items() if name not in zero}


def _layer_parameters(config: ModelConfig) -> Iterator[tuple[str, int, str, str]]:
    """Yield the stack, layer, module and kind (weight or bias) of each parameter in the layers."""
    for stack, layers in (("encoder", config.encoder_layers), ("decoder", config.decoder_layers)):
        modules = [module for module in (*INWARD, *OUTWARD) if stack == "decoder" or "cross" not in module]
        if stack == "decoder" and config.decoder_history == "ssru":
            modules = [*SSRU, *(module for module in modules if not module.startswith("attention"))]
        for number in range(layers):
            for module in modules:
                attends = module.startswith(("attention", "cross")) and module not in SSRU
                bare = module == UNBIASED or (attends and not config.attention_bias)
                yield from (
                    (stack, number, module, kind) for kind in (["weight"] if bare else WEIGHT_AND_BIAS)
                )


WEIGHT_AND_BIAS = ["weight", "bias"]


def _part_rows(config: ModelConfig, module: str) -> list[int]:
    """Return the row count of each of the other toolkits' matrices that our `module` combines."""
    keys, values = config.heads * config.d_k, config.heads * config.d_v
    rows = {"q": keys, "k": keys, "v": values}
    return [rows[part[-6]] if "_proj" in part else config.feed_forward for part in INWARD[module]]


def _import_parameter(
    reader: TensorReader, config: ModelConfig, prefix: str, module: str, kind: str
) -> Tensor:
    """Return our parameter `kind` (weight or bias) of `module`, joined from the other toolkit's tensors."""
    order, width = channel_order(config.width), config.width
    if module in SSRU:
        square = reader.take(
            f"{prefix}.{SSRU[module]}.{kind}", *((width, width) if kind == "weight" else (width,))
        )
        return square[order][:, order] if kind == "weight" else square[order]
    if module in OUTWARD:
        inner = config.feed_forward if "feed_forward.outer" in module else config.heads * config.d_v
        matrix = kind == "weight" and not module.endswith("norm")
        shape = (width, inner) if matrix else (width,)
        return reader.take(f"{prefix}.{OUTWARD[module]}.{kind}", *shape)[order]
    sizes = zip(INWARD[module], _part_rows(config, module), strict=True)
    if kind == "bias":
        return torch.cat([reader.take(f"{prefix}.{part}.bias", rows) for part, rows in sizes])
    return torch.cat([reader.take(f"{prefix}.{part}.weight", rows, width)[:, order] for part, rows in sizes])
