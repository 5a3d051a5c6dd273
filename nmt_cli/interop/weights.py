"""Convert between our tensors and those of other toolkits.

Hugging Face and fairseq share names for tensors, the common names. In their sinusoids, sines fill the first
half of the channels and cosines the second half. In ours, sines and cosines alternate. The conversion
reorders the channels.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import product
from typing import Any, NamedTuple

import torch
from torch import Tensor

from nmt_cli.checkpoints.model_folder import REAL
from nmt_cli.errors import UserError
from nmt_cli.model.config import ModelConfig
from nmt_cli.model.embedding import sinusoids
from nmt_cli.model.self_positions import BUCKETS
from nmt_cli.text.tokenizers import Tokenizers

SOURCE, TARGET = "encoder.embed_tokens.weight", "decoder.embed_tokens.weight"
OUTPUT, BIAS = "output.weight", "output.bias"
POSITIONS = {
    "source_embedding": "encoder.embed_positions.weight",
    "target_embedding": "decoder.embed_positions.weight",
}

TIED_BY = {TARGET: ("all", "decoder", "embeddings"), SOURCE: ("all",)}
"""Values of `model.tie` that make an embedding equal to the output matrix, or to the source embedding."""

MAX_ROWS = 1 << 24  # no vocabulary has more entries

LAYER = re.compile(r"(encoder|decoder)\.layers\.(\d+)\.(.+)\.(weight|bias)")
OPTIONAL = re.compile(r"output\.bias|.+(_proj|\.fc\w+)\.bias")
"""Biases that are zeros if they are missing."""

CHECKED = 256
"""Number of positions at which tables are compared with sinusoids."""

TOLERANCE = 0.01
"""Maximum difference between sinusoids. Converters compute them in fp32 and may round them to bf16."""


class Correspondence(NamedTuple):
    """One of our tensors, and the other toolkits' tensors that form our tensor."""

    ours: str

    theirs: Mapping[str, Sequence[int]]
    """Shapes of the other toolkits' tensors by common name. Joined along axis 0, they are our tensor."""

    channel_axes: Sequence[int] = ()
    """Axes that are a token's channels. The toolkits order these differently."""


def common_tensors(
    tensors: Mapping[str, Tensor], rename: Callable[[Mapping[str, Tensor]], dict[str, Tensor]], where: str
) -> dict[str, Tensor]:
    """Return the tensors under the common names that `rename` gives, after a check. `where` is the file that
    errors name.

    Biases of attention are left out if all of them are zeros, and so is that of the output.

    Raise `UserError` for a tensor that is not a dense vector or matrix on the CPU in fp16, bf16, fp32 or
    fp64, and for a view that repeats numbers. Also raise it if the output projection is missing, or if it or
    an embedding is not a matrix of at most `MAX_ROWS` rows.
    """
    for name, tensor in tensors.items():
        dense = tensor.layout is torch.strided and tensor.device.type == "cpu"
        if not dense or tensor.dtype not in REAL:
            kind = str(tensor.dtype if dense else tensor.layout).removeprefix("torch.")
            raise UserError(
                f"{where}: {name} is {kind}, but nmt import takes fp32, fp16, bf16 and fp64 only."
            )
        # With a stride of 0, a small file could describe a tensor of any size.
        if tensor.dim() not in (1, 2) or tensor.nbytes > tensor.untyped_storage().nbytes():
            raise UserError(
                f"{where}: {name} is {list(tensor.shape)}, not a vector or matrix. Copy it again."
            )
    tensors_by_name = rename(tensors)
    for kind in ("_proj.bias", BIAS):  # biases of zeros are no biases
        biases = [name for name in tensors_by_name if name.endswith(kind)]
        for name in () if any(tensors_by_name[name].any() for name in biases) else biases:
            del tensors_by_name[name]
    if OUTPUT not in tensors_by_name:
        raise UserError(f"{where} has no output projection, so nmt does not support this model.")
    for name in [name for name in (OUTPUT, SOURCE, TARGET) if name in tensors_by_name]:
        matrix = tensors_by_name[name]
        if matrix.dim() != 2 or len(matrix) > MAX_ROWS:
            raise UserError(f"{where}: {name} is {list(matrix.shape)}, not a matrix of embeddings.")
    return tensors_by_name


def channel_order(width: int) -> Tensor:
    """Return indices, [width]. Item i is the other toolkits' channel that becomes our channel i."""
    return torch.arange(width).view(2, width // 2).T.flatten()


def to_halves(rows: Tensor) -> Tensor:
    """Return a copy of `rows`, [n, width], with our channels in the other toolkits' order."""
    return rows[:, channel_order(rows.shape[1]).argsort()].contiguous()


def import_tensors(
    tensors: Mapping[str, Tensor],
    where: str,
    config: ModelConfig,
    tokenizers: Tokenizers,
    *,
    alternating: bool = False,
) -> dict[str, Tensor]:
    """Return our tensors by our names in fp32, for the vocabularies of `tokenizers`.

    tensors: the other toolkit's tensors by common names.
    where: the file that errors name.
    alternating: the channels are in our order, so they stay as they are.

    Embeddings that `config.tie` makes equal to another matrix are ignored. A missing bias is zeros. A missing
    bias of a norm is an error, and so is one that other layers have.

    Raise `UserError` for a tensor that is missing, unexpected, not finite, or of another shape.
    """
    order = torch.arange(config.width) if alternating else channel_order(config.width)
    imported: dict[str, Tensor] = {}
    left = {name: tensor for name, tensor in tensors.items() if config.tie not in TIED_BY.get(name, ())}
    source, target = (len(side.vocabulary) for side in (tokenizers.source, tokenizers.target))
    for one in correspondences(config, source, target):
        parts: list[Tensor] = []
        for name, shape in one.theirs.items():
            if name not in left and OPTIONAL.fullmatch(name):
                # If other layers have this bias, it was lost. Zeros would change translations without a word.
                _refuse_bias_of_other_layers(name, tensors, where)
                left[name] = torch.zeros(shape)
            if name not in left:
                raise UserError(f"{where} has no {name}, so nmt does not support this model.")
            part = left.pop(name).detach()
            if part.shape != torch.Size(shape):
                raise UserError(f"{where}: {name} is {list(part.shape)}, not {list(shape)}.")
            parts.append(part.float())
            if not parts[-1].isfinite().all():
                raise UserError(f"{where}: {name} has values that are not finite.")
        tensor = torch.cat(parts)
        for axis in one.channel_axes:
            tensor = tensor.index_select(axis, order)
        imported[one.ours] = tensor
    if left:
        raise UserError(
            f"{where} has {min(left)}, which nmt's Transformer lacks. It is another kind of model."
        )
    return imported


def _refuse_bias_of_other_layers(missing: str, names: Iterable[str], where: str) -> None:
    """Raise `UserError` if `names` have the bias `missing` in another layer. Errors name the file `where`."""
    layer = LAYER.fullmatch(missing)
    others = [match for match in map(LAYER.fullmatch, names) if match and match[4] == "bias"]
    if layer and layer[3] in {match[3] for match in others}:
        raise UserError(f"{where} has no {missing}, but other layers have one. Copy it again.")


def export_tensors(
    tensors: Mapping[str, Tensor], config: ModelConfig, *, alternating: bool = False
) -> dict[str, Tensor]:
    """Return our `tensors` under their common names.

    Channels are in the order of the other toolkits, with all sines before all cosines. If `alternating`,
    they stay in ours. Embeddings of source and target are always present, even if tied.
    """
    output = tensors["output_matrix"]
    source = tensors.get("source_embedding.matrix", output)
    target = tensors.get("target_embedding.matrix", source if config.tie == "embeddings" else output)
    back = torch.arange(config.width) if alternating else channel_order(config.width).argsort()
    exported = {TARGET: target.index_select(1, back), SOURCE: source.index_select(1, back)}
    for one in correspondences(config, len(source), len(target)):
        parts = torch.split(tensors[one.ours], [rows for rows, *_ in one.theirs.values()])
        for name, part in zip(one.theirs, parts, strict=True):
            for axis in one.channel_axes:
                part = part.index_select(axis, back)
            exported[name] = part
    return {name: tensor.detach().contiguous() for name, tensor in exported.items()}


def with_attention_biases(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return `tensors`, by common names, with a vector of zeros for each missing bias of attention."""
    biases = {
        name.replace(".weight", ".bias"): tensor.new_zeros(len(tensor))
        for name, tensor in tensors.items()
        if name.endswith("_proj.weight")
    }
    return biases | dict(tensors)


def has_biases(tensors: Mapping[str, Tensor], kind: str = "_proj") -> bool:
    """Return whether attention, or another `kind` of layer, has a bias in `tensors`, by common names."""
    return any(kind in name for name in tensors if name.endswith(".bias"))


def architecture(tensors: Mapping[str, Tensor], *, joint: bool) -> dict[str, Any]:
    """Return the settings of `ModelConfig` that follow from `tensors`, by common names. `joint` means that
    both sides share a vocabulary."""
    layers = {match.groups()[:2] for name in tensors if (match := LAYER.fullmatch(name))}
    output, source, target = (tensors.get(name, torch.empty(0)) for name in (OUTPUT, SOURCE, TARGET))
    # Files may store a tied matrix twice, so the values decide.
    if torch.equal(target, output):
        tie = "all" if joint and torch.equal(source, output) else "decoder"
    else:
        tie = "embeddings" if joint and torch.equal(source, target) else "none"
    inner, decoder_inner = (
        len(tensors.get(f"{stack}.layers.0.fc1.weight", output)) for stack in ("encoder", "decoder")
    )
    return {
        "encoder_layers": sum(stack == "encoder" for stack, _ in layers),
        "decoder_layers": sum(stack == "decoder" for stack, _ in layers),
        "width": output.shape[1],
        "feed_forward": inner,
        "decoder_feed_forward": decoder_inner if decoder_inner != inner else 0,
        "norm_kind": "layer" if "encoder.layers.0.self_attn_layer_norm.bias" in tensors else "rms",
        "gated": "encoder.layers.0.fc1_value.weight" in tensors,
        "feed_forward_bias": has_biases(tensors, ".fc"),
        "attention_bias": has_biases(tensors),
        "output_bias": BIAS in tensors,
        "tie": tie,
    }


def table_positions(tensors: dict[str, Tensor]) -> tuple[dict[str, Any], bool] | None:
    """Return the settings of positions for the tables in `tensors`, and whether sines and cosines alternate
    in them. Return None without tables.

    If the tables are sinusoids, remove them from `tensors`, because nmt computes them. Other tables are
    learned positions. Cut these to the rows that both sides have.
    """
    names = [name for name in POSITIONS.values() if name in tensors]
    if not names:
        return None
    tables = [tensors[name] for name in names]
    rows, width = min(map(len, tables)), tables[0].shape[-1]
    comparable = {table.shape[1:] for table in tables} == {(width,)} and width > 2 and width % 2 == 0
    kinds = ("sinusoidal", "marian") if comparable else ()
    # Positions begin at 1 in CTranslate2 without a table, and at 2 in fairseq.
    for kind, first, alternating in product(kinds, range(3), (True, False)):
        expected = sinusoids(min(rows, CHECKED), width, kind, first)
        expected = expected if alternating else to_halves(expected)
        if all(table[: len(expected)].float().allclose(expected, 0, TOLERANCE) for table in tables):
            for name in names:
                del tensors[name]
            return {"positions": kind, "first_position": first}, alternating
    tensors |= {name: tensors[name][:rows] for name in names}
    return {"positions": "learned", "longest": rows}, True


def correspondences(config: ModelConfig, source: int, target: int) -> Iterator[Correspondence]:
    """Yield a `Correspondence` for each tensor of our model.

    Tied embeddings are left out. `source` and `target` are sizes of vocabularies.
    """
    width = config.width
    yield Correspondence("output_matrix", {OUTPUT: (target, width)}, [1])
    if config.output_bias:
        yield Correspondence("output_bias", {BIAS: (target,)})
    if config.tie != "all":
        yield Correspondence("source_embedding.matrix", {SOURCE: (source, width)}, [1])
    if config.tie == "none":
        yield Correspondence("target_embedding.matrix", {TARGET: (target, width)}, [1])
    yield from _of_positions(config)
    for number in range(config.encoder_layers):
        yield from _of_layer(config, "encoder", number)
    for number in range(config.decoder_layers):
        yield from _of_layer(config.of_decoder, "decoder", number)
    for stack in ("encoder", "decoder") if config.norm == "pre" else ():
        for kind in ("weight", "bias") if config.norm_kind == "layer" else ("weight",):
            yield Correspondence(f"{stack}_norm.{kind}", {f"{stack}.layer_norm.{kind}": (width,)}, [0])


def _of_positions(config: ModelConfig) -> Iterator[Correspondence]:
    """Yield the `Correspondence` of each tensor of learned or relative positions."""
    if config.positions == "learned":
        for module, name in POSITIONS.items():
            yield Correspondence(f"{module}.positions.table", {name: (config.longest, config.width)}, [1])
    if config.positions == "relative":
        for stack, of_stack in (("encoder", config), ("decoder", config.of_decoder)):
            biases = {f"{stack}.relative_bias": (BUCKETS, of_stack.heads)}
            yield Correspondence(f"{stack}_positions.table", biases)


def _of_layer(config: ModelConfig, stack: str, number: int) -> Iterator[Correspondence]:
    """Yield the `Correspondence` of each tensor in layer `number` of `stack`, "encoder" or "decoder".

    A bias has an element per row of the weight. The activation applies to "fc1". If the layer is gated,
    "fc1_value" is the other factor.
    """
    width, inner, biased = config.width, config.feed_forward, config.attention_bias
    centred, fc_biased = config.norm_kind == "layer", config.feed_forward_bias
    keys, values = config.heads * config.d_k, config.heads * config.d_v
    modules: list[tuple[str, dict[str, list[int]], list[int], bool]] = []
    if stack == "decoder" and config.decoder_history == "ssru":  # instead of attention
        modules.append(("attention.value", {"ssru.value": [width, width]}, [0, 1], False))
        modules.append(("attention.forget", {"ssru.forget": [width, width]}, [0, 1], True))
    else:
        joined = {"self_attn.q_proj": [keys, width], "self_attn.k_proj": [keys, width]}
        joined |= {"self_attn.v_proj": [values, width]}
        modules.append(("attention.query_key_value", joined, [1], biased))
        modules.append(("attention.output", {"self_attn.out_proj": [width, values]}, [0], biased))
    modules.append(("after_attention.norm", {"self_attn_layer_norm": [width]}, [0], centred))
    if stack == "decoder":
        joined = {"encoder_attn.k_proj": [keys, width], "encoder_attn.v_proj": [values, width]}
        modules.append(("cross.query", {"encoder_attn.q_proj": [keys, width]}, [1], biased))
        modules.append(("cross.key_value", joined, [1], biased))
        modules.append(("cross.output", {"encoder_attn.out_proj": [width, values]}, [0], biased))
        modules.append(("after_cross.norm", {"encoder_attn_layer_norm": [width]}, [0], centred))
    joined = {"fc1": [inner, width], "fc1_value": [inner, width]} if config.gated else {"fc1": [inner, width]}
    modules.append(("feed_forward.inner", joined, [1], fc_biased))
    modules.append(("feed_forward.outer", {"fc2": [width, inner]}, [0], fc_biased))
    modules.append(("after_feed_forward.norm", {"final_layer_norm": [width]}, [0], centred))
    for ours, theirs, channel_axes, has_bias in modules:
        for kind, axes in (("weight", 2), ("bias", 1)) if has_bias else (("weight", 2),):
            prefix, used = f"{stack}.layers.{number}", [axis for axis in channel_axes if axis < axes]
            shapes = {f"{prefix}.{name}.{kind}": shape[:axes] for name, shape in theirs.items()}
            yield Correspondence(f"{stack}.{number}.{ours}.{kind}", shapes, used)
