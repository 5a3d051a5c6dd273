"""Read model folders of eole: Transformers with an encoder and a decoder, and their subword models."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from torch import Tensor

from nmt_cli.checkpoints.verified_files import read_tensors
from nmt_cli.errors import UserError
from nmt_cli.interop import weights
from nmt_cli.interop.foreign import (
    UNTOUCHED,
    Activation,
    Foreign,
    ImportOptions,
    foreign_tokenizers,
    foreign_vocabulary,
    padded_entries,
)
from nmt_cli.interop.foreign_settings import ForeignSettings, read_file, read_settings, read_spm
from nmt_cli.model.config import ModelConfig
from nmt_cli.text.config import Kind
from nmt_cli.text.tokenizer import Side
from nmt_cli.text.tokenizers import Recipe, Tokenizers
from nmt_cli.text.vocabulary import Vocabulary

CONFIG, VOCABULARY, WEIGHTS = "config.json", "vocab.json", "model.*.safetensors"
FILLER = "averyunlikelytoken"
SIDES: Mapping[str, Side] = {"src": "source", "tgt": "target"}
LAYER = re.compile(r"(encoder|decoder)\.transformer_layers\.(\d+)\.(.+)\.(weight|bias)")
PROJECTION = re.compile(r"\.(self|encoder)_attn\.([qkv])_proj\.")
IN_LAYER = {
    f"{theirs}_attn.linear_{part}": f"{ours}_attn.{part[0]}_proj"
    for theirs, ours in (("self", "self"), ("context", "encoder"))
    for part in ("query", "keys", "values")
} | {
    "self_attn.final_linear": "self_attn.out_proj",
    "context_attn.final_linear": "encoder_attn.out_proj",
    "input_layernorm": "self_attn_layer_norm",
    "precontext_layernorm": "encoder_attn_layer_norm",
    "post_attention_layernorm": "final_layer_norm",
    "mlp.gate_up_proj": "fc1",
    "mlp.up_proj": "fc1_value",
    "mlp.down_proj": "fc2",
}
"""The common name of each module of a layer."""

OUTSIDE = {
    "src_emb.embeddings.weight": weights.SOURCE,
    "tgt_emb.embeddings.weight": weights.TARGET,
    "generator.weight": weights.OUTPUT,
    "generator.bias": weights.BIAS,
    **dict.fromkeys(("src_emb.pe.pe", "src_emb.pe.weight"), weights.POSITIONS["source_embedding"]),
    **dict.fromkeys(("tgt_emb.pe.pe", "tgt_emb.pe.weight"), weights.POSITIONS["target_embedding"]),
}
"""The common names of other tensors."""

ACTIVATIONS: Mapping[str, tuple[bool, Activation]] = {
    "relu": (False, "relu"),
    "silu": (False, "swish"),
    "gated-silu": (True, "swish"),
    "gelu": (False, "gelu"),
    "gated-gelu": (True, "gelu"),
    "gelu-tanh": (False, "gelu_tanh"),
    "gated-gelu-tanh": (True, "gelu_tanh"),
}
"""For each `mlp_activation_fn`, whether the layer is gated, and its activation."""

NORMS: Mapping[str, Literal["layer", "rms"]] = {"standard": "layer", "standardFP32": "layer", "rms": "rms"}
POSITION_KINDS: Mapping[str, Literal["sinusoidal", "marian", "learned", "rotary"]] = {
    "SinusoidalInterleaved": "sinusoidal",
    "SinusoidalConcat": "marian",
    "Learned": "learned",
    "Rotary": "rotary",
}
SUPPORTED: Mapping[str, Sequence[object]] = {
    "architecture": ["transformer"],
    "encoder_layer_style": ["standard"],
    "embedding_type": ["standard"],
    "final_encoder_layer_norm": [True],
    "generator_function": ["softmax"],
    "rotary_theta": [10_000],
    **dict.fromkeys(("attn_scaling", "layer_types", "global_head_dim", "scaling_type"), (None,)),
    **dict.fromkeys(("parallel_residual", "ffn_layernorm", "query_norm", "key_norm", "value_norm"), (False,)),
    **dict.fromkeys(("q_gating", "multidimensional_rope", "embedding_layer_norm", "add_estimator"), (False,)),
    **dict.fromkeys(("position_shift", "sliding_window", "num_experts", "interleave_local"), (0,)),
    **dict.fromkeys(("relative_positions_buckets", "num_mtp_heads", "rotary_dim_global"), (0,)),
}
"""The values that nmt supports. The first is the default."""

SPECIAL = {"eos": "</s>", "unk": "<unk>", "pad": "<blank>", "bos": "<s>"}
"""The default special tokens."""

SAME = (
    "heads",
    "head_dim",
    "mlp_activation_fn",
    "layer_norm",
    "norm_eps",
    "position_encoding_type",
    "rope_config",
)
"""Settings that encoder and decoder must share."""

TRANSFORMS: Sequence[Kind] = ("sentencepiece", "bpe")
TRAINING_ONLY = ("filtertoolong", "tokendrop", "tokenmask", "switchout")
"""Transforms that segment text, and those that do not change the input of a translation."""

SEARCH: Mapping[str, Any] = {
    "beam": 5,
    "length_rule": "power",
    "length_penalty": 1.0,
    "cap_ratio": 2.0,
    "cap_extra": 5,
    "unknown": True,
}
"""Defaults of `eole predict`."""


def read(folder: Path, options: ImportOptions) -> Foreign:
    """Return the model in `folder`. Raise `UserError` for unsupported settings, a missing or damaged file, or
    a missing language."""
    described = read_settings(folder / CONFIG)
    settings = _settings(described.part("model"))
    tensors = weights.common_tensors(_tensors(folder), _usual_names, str(folder))
    rows = {"src": len(tensors.get(weights.SOURCE, ())), "tgt": len(tensors[weights.OUTPUT])}
    tokenizers = _tokenizers(folder, described, rows, options)
    config, alternating = _config(settings, tensors, tokenizers.recipe.joint)
    settings.demand("rotary_dim", 0, config.d_k)
    _expand_attention(tensors, config, neighbours=settings.flag("rotary_interleave", True))
    imported = weights.import_tensors(tensors, str(folder), config, tokenizers, alternating=alternating)
    longest = described.part("transforms_configs").part("filtertoolong").integer("src_seq_length", 0)
    return Foreign("eole", config, tokenizers, imported, SEARCH, longest if longest > 1 else None)


def _settings(model: ForeignSettings) -> ForeignSettings:
    """Return the settings of the model together with those of its parts. Raise `UserError` for an unsupported
    setting, and if encoder and decoder differ in one of `SAME`."""
    common = model.part("embeddings") | model
    # A setting of a stack replaces that of the model, which replaces that of the embeddings.
    decoder, encoder = (common | model.part(name) for name in ("decoder", "encoder"))
    if differing := encoder.differences(decoder, SAME):
        raise UserError(f"{model.where}: encoder and decoder differ in {differing[0]}, but nmt's do not.")
    encoder = encoder.part("rope_config") | encoder
    for settings in (decoder, encoder):
        for name, values in SUPPORTED.items():
            settings.demand(name, *values)
    return encoder


def _tensors(folder: Path) -> dict[str, Tensor]:
    """Return the tensors in `folder` by eole's names.

    Factors of layers that are 1 are left out. Tables of positions, which have three axes, become matrices.
    Raise `UserError` if the folder has no weights.
    """
    tensors: dict[str, Tensor] = {}
    for file in sorted(folder.glob(WEIGHTS)):
        for name, tensor in read_tensors(file).items():
            if not name.endswith(".layer_scalar") or (tensor != 1).any():
                tensors[name] = tensor.flatten(0, 1) if tensor.dim() == 3 else tensor
    if not tensors:
        raise UserError(f"{folder} has no {WEIGHTS}. Copy the whole folder again.")
    return tensors


def _usual_names(arrays: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors under their common names. A missing target embedding is that of the source, and a
    missing output projection the target embedding."""
    tensors: dict[str, Tensor] = {}
    for name, array in arrays.items():
        if (match := LAYER.fullmatch(name)) and match[3] in IN_LAYER:
            name = f"{match[1]}.layers.{int(match[2])}.{IN_LAYER[match[3]]}.{match[4]}"
        tensors[OUTSIDE.get(name, name)] = array
    for name, other in ((weights.TARGET, weights.SOURCE), (weights.OUTPUT, weights.TARGET)):
        if other in tensors:
            tensors.setdefault(name, tensors[other])
    return tensors


def _config(settings: ForeignSettings, tensors: dict[str, Tensor], joint: bool) -> tuple[ModelConfig, bool]:
    """Return the architecture, and whether sines and cosines of positions alternate.

    tensors: by common names. Tables of sinusoids are removed from them, since nmt computes these.
    joint: both sides share a vocabulary.
    """
    described = weights.architecture(tensors, joint=joint)
    kind = settings.choice("position_encoding_type", POSITION_KINDS, "SinusoidalInterleaved")
    positions, alternating = weights.table_positions(tensors) or ({"positions": kind}, kind != "marian")
    described |= {**positions, "norm": "pre", "scale_embeddings": kind in ("sinusoidal", "marian")}
    if kind == "rotary":
        described["scale_embeddings"] = settings.flag("normalize", False)
    else:
        settings.demand("normalize", False)
    described["gated"], described["activation"] = settings.choice("mlp_activation_fn", ACTIVATIONS, "relu")
    described["heads"] = settings.integer("heads", 8)
    described["key_width"] = described["value_width"] = settings.integer("head_dim", 0)
    described["norm_kind"] = settings.choice("layer_norm", NORMS, "standard")
    described["norm_epsilon"] = settings.number("norm_eps", 1e-5)
    return ModelConfig(**described), alternating


def _expand_attention(tensors: dict[str, Tensor], config: ModelConfig, *, neighbours: bool) -> None:
    """Bring keys, values and rotary channels in `tensors` to our form. A tensor that does not fit stays as it
    is.

    Keys and values that several heads share are repeated for each head. Where rotary positions turn
    `neighbours` together, the first channels of all pairs come first in a head.
    """
    first_half = weights.channel_order(config.d_k).argsort()
    for name, tensor in tensors.items():
        match = PROJECTION.search(name)
        if not match or not len(tensor) or len(tensor) % config.d_k:
            continue
        by_head = tensor.view(-1, config.d_k, *tensor.shape[1:])
        query = tensors.get(name.replace(f".{match[2]}_proj.", ".q_proj."), tensor)
        # Otherwise, a small file could demand any amount of memory.
        as_queries = query.shape == (config.heads * config.d_k, *tensor.shape[1:])
        if as_queries and config.heads % len(by_head) == 0:
            by_head = by_head.repeat_interleave(config.heads // len(by_head), 0)
        if config.positions == "rotary" and neighbours and match[1] == "self" and match[2] in "qk":
            by_head = by_head[:, first_half]
        tensors[name] = by_head.flatten(0, 1)


def _tokenizers(
    folder: Path, described: ForeignSettings, rows: Mapping[str, int], options: ImportOptions
) -> Tokenizers:
    """Return the tokenisers that the settings name, with vocabularies padded to `rows`.

    Raise `UserError` for a missing or damaged file, for a transform that nmt does not support, and for an
    unknown language.
    """
    names = [name for name in described.list_of("transforms", str) if name not in TRAINING_ONLY]
    kind = next((kind for kind in TRANSFORMS if names == [kind]), None)
    if not kind:
        listed, kinds = ", ".join(names) or "no subwords", " or ".join(TRANSFORMS)
        raise UserError(f"{described.where}: transforms has {listed}. nmt supports {kinds}.")
    settings = described.part("transforms_configs").part(kind)
    words = read_settings(folder / VOCABULARY)
    sides = {ours: _vocabulary(words, side, rows[side]) for side, ours in SIDES.items()}
    models: dict[Side, bytes] = {}
    for side, ours in SIDES.items():
        settings.demand(f"{side}_vocab_threshold", 0)
        model = settings.text(f"{side}_subword_model", settings.text("src_subword_model"))
        read = read_spm if kind == "sentencepiece" else read_file
        # The setting is a path on the machine of training. The name alone cannot lead out of the folder.
        models[ours] = read(folder / Path(model).name)
    recipe = Recipe(kind, True, *options.languages("", "", folder), UNTOUCHED, bare_source=True)
    return foreign_tokenizers(recipe, models, sides)


def _vocabulary(words: ForeignSettings, side: str, rows: int) -> Vocabulary:
    """Return the vocabulary of a side, padded to `rows` entries.

    Search never produces start tokens, padding and fillers. Raise `UserError` for a missing special token,
    and for more entries than `rows`.
    """
    entries = ["" if entry.startswith(FILLER) else entry for entry in words.list_of(side, str)]
    specials = words.part("specials")
    tokens = [specials.text(f"{name}_token", token) for name, token in SPECIAL.items()]
    tokens.append(words.text("decoder_start_token", tokens[-1]))
    if missing := [token for token in tokens if token not in entries]:
        raise UserError(f"{words.where}: {side} has no {missing[0]}. Copy the folder again.")
    end, unknown, padding, begin, start = (entries.index(token) for token in tokens)
    texts = padded_entries(entries, rows, f"{words.where}: {side}")
    return foreign_vocabulary(texts, end=end, unknown=unknown, start=start, never=(padding, begin, start))
