"""Read models of CTranslate2: folders as its converters write them, such as quickmt's, and packages of Argos
Translate, which contain one."""

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from nmt_cli.errors import UserError
from nmt_cli.interop import weights
from nmt_cli.interop.exporters.exported import EXCLUDED_BIAS, OVER_LENGTHS
from nmt_cli.interop.foreign import POSITIONS, Activation, Foreign, ImportOptions
from nmt_cli.interop.foreign_settings import ForeignSettings, read_settings, read_settings_if_any
from nmt_cli.interop.importers import m2m100
from nmt_cli.interop.importers.ctranslate2_binary import read_binary
from nmt_cli.interop.importers.ctranslate2_text import (
    QUICKMT,
    language_codes,
    tokenizers_beside,
    vocabularies,
)
from nmt_cli.interop.importers.huggingface import POSITIONS_NOTE
from nmt_cli.model.config import ModelConfig
from nmt_cli.model.self_positions import FARTHEST
from nmt_cli.runtime.zips import unpacked

WEIGHTS, CONFIG, METADATA = "model.bin", "config.json", "metadata.json"
REVISIONS = range(2, 8)
"""Revisions of the specification with the names in `IN_LAYER`. CTranslate2 writes 7."""

PACKAGED = re.compile(
    r"[^/\\]+/(?:metadata\.json|sentencepiece\.model|bpe\.model|model/[\w.-]+\.(?:bin|json|txt))"
)
"""Names of the files to extract from a package of Argos Translate."""

LAYER = re.compile(r"(encoder|decoder)/layer_([0-9]{1,4})/(\w+/\w+)/(\w+)")
RELATIVE = re.compile(r"(encoder|decoder)/layer_[0-9]{1,4}/self_attention/relative_attention_bias")
KINDS = {"weight": "weight", "bias": "bias", "gamma": "weight", "beta": "bias"}
IN_LAYER: Mapping[str, Sequence[str]] = {
    "self_attention/layer_norm": ["self_attn_layer_norm"],
    "self_attention/linear_0": ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"],
    "self_attention/linear_1": ["self_attn.out_proj"],
    "attention/layer_norm": ["encoder_attn_layer_norm"],
    "attention/linear_0": ["encoder_attn.q_proj"],
    "attention/linear_1": ["encoder_attn.k_proj", "encoder_attn.v_proj"],
    "attention/linear_2": ["encoder_attn.out_proj"],
    "ffn/layer_norm": ["final_layer_norm"],
    "ffn/linear_0": ["fc1"],
    "ffn/linear_0_noact": ["fc1_value"],
    "ffn/linear_1": ["fc2"],
}
"""Common names of the modules of a layer, by CTranslate2's. A module with several names joins them."""

OUTSIDE_LAYERS = {
    "encoder/embeddings/weight": weights.SOURCE,  # before revision 5
    "encoder/embeddings_0/weight": weights.SOURCE,
    "decoder/embeddings/weight": weights.TARGET,
    "decoder/projection/weight": weights.OUTPUT,
    "decoder/projection/bias": weights.BIAS,
    "encoder/layer_norm/gamma": "encoder.layer_norm.weight",
    "encoder/layer_norm/beta": "encoder.layer_norm.bias",
    "decoder/layer_norm/gamma": "decoder.layer_norm.weight",
    "decoder/layer_norm/beta": "decoder.layer_norm.bias",
    "encoder/position_encodings/encodings": weights.POSITIONS["source_embedding"],
    "decoder/position_encodings/encodings": weights.POSITIONS["target_embedding"],
}
"""Common names of other tensors, by CTranslate2's. Exports have the last name of a tensor."""

ACTIVATIONS: Mapping[int, Activation] = {0: "relu", 1: "gelu_tanh", 2: "swish", 3: "gelu"}
"""Our `model.activation` by the number in CTranslate2."""

DECODER_HEADS = "decoder/num_heads"
FLAGS = (
    DECODER_HEADS,
    *("with_source_bos", "with_source_eos", "with_target_bos", "start_from_zero_embedding", "pre_norm"),
    *("num_heads", "num_heads_kv", "head_dim", "queries_scale", "activation", "scale_embeddings"),
    *("rotary_dim", "rotary_base", "rotary_interleave", "relative_attention_max_distance"),
    *("embeddings_merge", "alignment_layer", "alignment_heads"),  # change no translation
)
"""Variables without axes that a supported model may have."""

LONGEST = 256
"""Maximum target tokens in CTranslate2 by default."""

STOPPING: Mapping[str, Any] = {**OVER_LENGTHS, "stop_early": True}
"""The toolkit stops when the number of finished hypotheses reaches the beam size."""

SEARCH: Mapping[str, Any] = {
    **STOPPING,
    "beam": 2,
    "min_length": 1,
    "cap_ratio": 0.0,
    "cap_extra": LONGEST,
    "unknown": True,
}
"""Defaults of CTranslate2."""

ARGOS_PENALTY = 0.2
"""Length penalty that Argos Translate passes to CTranslate2."""

ARGOS_SEARCH = {**SEARCH, "beam": 4, "length_penalty": ARGOS_PENALTY, "unknown": False}
"""Settings of Argos Translate. It replaces unknown tokens by source tokens, so nmt avoids them."""


def read(folder: Path, options: ImportOptions) -> Foreign:
    """Return the model in a folder of CTranslate2, with SentencePiece models beside `model.bin`. Raise
    `UserError` for missing files, or a model that nmt cannot express."""
    search = {**SEARCH, "beam": 5} if (folder / QUICKMT[0]).is_file() else SEARCH
    return _read(folder, folder, ("", ""), options, search, "CTranslate2")


def read_package(path: Path, options: ImportOptions) -> Foreign:
    """Return the model of a package of Argos Translate: an `.argosmodel`, a folder with one, or an installed
    folder. Raise `UserError` for another package, a hostile or damaged file, or a model that nmt cannot
    express."""
    packages = [] if (path / METADATA).is_file() else sorted(path.glob("*.argosmodel"))
    if len(packages) > 1:
        raise UserError(f"{path} has {len(packages)} packages. Name one of them, such as {packages[0]}.")
    path = packages[0] if packages else path
    if path.is_dir():
        metadata = read_settings(path / METADATA)
        metadata.demand("target_prefix", "")
        languages = metadata.text("from_code", ""), metadata.text("to_code", "")
        return _read(path / "model", path, languages, options, ARGOS_SEARCH, "Argos Translate")
    with unpacked(path, PACKAGED) as folder:
        folders = [*folder.iterdir()]
        if len(folders) != 1:
            raise UserError(f"{path} has {len(folders)} folders with a model. A package has one.")
        return read_package(folders[0], options)


def _read(
    folder: Path,
    beside: Path,
    languages: tuple[str, str],
    options: ImportOptions,
    search: Mapping[str, Any],
    kind: str,
) -> Foreign:
    """Return the model in `folder`, with the SentencePiece models in the folder `beside`. `search` has the
    settings of the toolkit `kind`, and `languages` those that the package records, or ""."""
    where = folder / WEIGHTS
    binary = read_binary(where)
    if binary.specification != "TransformerSpec" or binary.revision not in REVISIONS:
        raise UserError(
            f"{where} is a {binary.specification} of revision {binary.revision}. nmt import supports "
            f"TransformerSpec, an encoder and a decoder, of revision {REVISIONS[0]} to {REVISIONS[-1]}."
        )
    flags = _flags(binary.tensors, str(where))
    settings = _settings(folder, binary.version, flags)
    arrays = {name: tensor for name, tensor in binary.tensors.items() if tensor.dim()}
    tensors = weights.common_tensors(arrays, _usual_names, str(where))
    described = _described(flags, tensors[weights.OUTPUT].shape[1])
    zeros = described["start"] == "zeros"
    codes = language_codes(folder, beside)
    # Users of Marian's models, which start with zeros, and of M2M100 and NLLB add the end token themselves.
    bare = not zeros and not codes and not settings.flag("add_source_eos", False)
    rows = len(tensors.get(weights.SOURCE, tensors[weights.OUTPUT])), len(tensors[weights.OUTPUT])
    sides = vocabularies(folder, settings, rows, _excluded(tensors), zeros=zeros, bare=bare)
    described |= weights.architecture(tensors, joint=sides["source"] is sides["target"])
    alternating = _add_positions(described, tensors, options)
    epsilon = settings.number("layer_norm_epsilon", 1e-6 if described["norm_kind"] == "rms" else 1e-5)
    config = ModelConfig(**described, norm_epsilon=epsilon)
    pair = settings.text("source_lang", languages[0]), settings.text("target_lang", languages[1])
    tokenizers = tokenizers_beside(beside, options.languages(*pair, beside), sides, bare, codes)
    imported = weights.import_tensors(tensors, str(where), config, tokenizers, alternating=alternating)
    notes = [POSITIONS_NOTE] if zeros and config.positions == "sinusoidal" else []
    notes += [m2m100.NOTE.format(codes[0])] if codes else []
    return Foreign(kind, config, tokenizers, imported, search, min(LONGEST, config.limit or LONGEST), notes)


def _flags(variables: Mapping[str, Tensor], where: str) -> ForeignSettings:
    """Return the variables without axes by the last part of their names, but `DECODER_HEADS` by that name.
    Raise `UserError`, which names `where`, for one that nmt does not support, or with two values."""
    flags: dict[str, Any] = {}
    for path, tensor in variables.items():
        name = path if path == DECODER_HEADS else path.rpartition("/")[2]
        if not tensor.dim() and tensor and name not in FLAGS:
            raise UserError(f"{where} has {path}, which nmt import does not support.")
        if not tensor.dim() and flags.setdefault(name, tensor.item()) != tensor.item():
            raise UserError(f"{where}: {name} has two values, which nmt import does not support.")
    return ForeignSettings(flags, where)


def _settings(folder: Path, version: int, flags: ForeignSettings) -> ForeignSettings:
    """Return the settings in `config.json`. Up to `version` 5, `flags` have some of them. Raise `UserError`
    for an unsupported setting."""
    settings = read_settings_if_any(folder / CONFIG)
    if version < 6:  # as in most packages of Argos Translate
        start = "<s>" if flags.integer("with_target_bos", 1) else "</s>"
        old: dict[str, Any] = {"decoder_start_token": start}
        old |= {f"add_source_{name}": flags.equals(f"with_source_{name}", 1) for name in ("bos", "eos")}
        settings |= ForeignSettings(old, settings.where)
    settings.demand("quantization_type", 0)
    settings.demand("add_source_bos", False)
    return settings


def _usual_names(arrays: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors under their common names. Split joined projections."""
    tensors: dict[str, Tensor] = {}
    for name, array in arrays.items():
        match, bias = LAYER.fullmatch(name), RELATIVE.fullmatch(name)
        if match and match[3] in IN_LAYER and match[4] in KINDS:
            parts = array.tensor_split(len(IN_LAYER[match[3]]))
            for module, part in zip(IN_LAYER[match[3]], parts, strict=True):
                tensors[f"{match[1]}.layers.{int(match[2])}.{module}.{KINDS[match[4]]}"] = part
        elif bias and torch.equal(array, tensors.setdefault(f"{bias[1]}.relative_bias", array)):
            continue  # all layers of a stack have the same
        else:
            tensors[OUTSIDE_LAYERS.get(name, name)] = array
    return tensors


def _described(flags: ForeignSettings, width: int) -> dict[str, Any]:
    """Return our settings that follow from `flags`. Raise `UserError` for a value that nmt lacks."""
    heads, scale = flags.integer("num_heads", 8), flags.number("scale_embeddings", width**0.5)
    head_dim, decoder_heads = flags.integer("head_dim", 0), flags.integer(DECODER_HEADS, heads)
    head_width = max(head_dim or width // max(heads, 1), 1)
    usual = head_width**-0.5
    if not math.isclose(flags.number("queries_scale", usual), usual, rel_tol=1e-3):
        flags.demand("queries_scale", usual)
    # An integer says whether to scale by sqrt(width). Any other number is the scale.
    is_scaled = flags.equals("scale_embeddings", 1) or math.isclose(scale, width**0.5, rel_tol=1e-3)
    if not is_scaled:
        flags.demand("scale_embeddings", 0, 1)
    flags.demand("activation", *ACTIVATIONS)
    flags.demand("num_heads_kv", heads)
    flags.demand("rotary_dim", 0, head_width)  # 0 is all channels of a head
    flags.demand("rotary_base", 10_000)
    flags.demand("rotary_interleave", 0)
    flags.demand("relative_attention_max_distance", FARTHEST)
    own_width = 0 if head_dim * heads == head_dim * decoder_heads == width else head_dim
    return {
        "heads": heads,
        "decoder_heads": flags.integer_if_other(DECODER_HEADS, heads),
        "key_width": own_width,
        "value_width": own_width,
        "norm": "pre" if flags.integer("pre_norm", 1) else "post",
        "activation": ACTIVATIONS[flags.integer("activation", 0)],
        "scale_embeddings": is_scaled,
        "start": "zeros" if flags.integer("start_from_zero_embedding", 0) else "mark",
        "positions": "rotary" if "rotary_dim" in flags else "marian",
    }


def _add_positions(described: dict[str, Any], tensors: dict[str, Tensor], options: ImportOptions) -> bool:
    """Add our settings of positions to `described`, and remove tables of sinusoids from `tensors`. Return
    whether sines and cosines alternate."""
    if "encoder.relative_bias" in tensors:
        described["positions"] = "relative"
    if described["positions"] != "marian":
        return True
    # Without a table, CTranslate2 adds sinusoids.
    positions, alternating = weights.table_positions(tensors) or ({"first_position": 1}, False)
    described |= positions
    if options.positions and "first_position" in positions:
        described["positions"] = POSITIONS[options.positions]
    return alternating


def _excluded(tensors: dict[str, Tensor]) -> set[int]:
    """Return the entries with `EXCLUDED_BIAS`. If all others have a bias of 0, remove it from `tensors`."""
    bias = tensors.get(weights.BIAS)
    if bias is None or bias.dim() != 1:
        return set()
    is_excluded = bias <= 0.9 * EXCLUDED_BIAS  # perhaps rounded to bf16
    if is_excluded.any() and not bias[~is_excluded].any():
        del tensors[weights.BIAS]
    return {*is_excluded.nonzero().flatten().tolist()}
