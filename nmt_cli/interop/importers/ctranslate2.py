"""Read models of CTranslate2: folders as its converters write them, such as quickmt's, and packages of Argos
Translate, which contain one."""

import math
import re
import tempfile
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from nmt_cli.errors import UserError
from nmt_cli.interop.exporters import argos as argos_export
from nmt_cli.interop.exporters import ctranslate2 as ctranslate2_export
from nmt_cli.interop.exporters.exported import EXCLUDED_BIAS
from nmt_cli.interop.foreign import POSITIONS, Activation, Foreign, ImportOptions, Positions
from nmt_cli.interop.foreign_settings import ForeignSettings, read_json, read_settings
from nmt_cli.interop.importers.ctranslate2_binary import read_binary
from nmt_cli.interop.importers.ctranslate2_text import QUICKMT, tokenizers_beside, vocabularies
from nmt_cli.interop.importers.huggingface import POSITIONS_NOTE
from nmt_cli.interop.weights import (
    BIAS,
    OUTPUT,
    SOURCE,
    TARGET,
    common_tensors,
    import_tensors,
    to_halves,
    with_attention_biases,
    without_zero_biases,
)
from nmt_cli.interop.weights import POSITIONS as TABLES
from nmt_cli.model.config import ModelConfig
from nmt_cli.model.embedding import sinusoids
from nmt_cli.model.self_positions import FARTHEST
from nmt_cli.runtime.zips import opened, refuse_hostile
from nmt_cli.text.tokenizer import SIDES

WEIGHTS, CONFIG, METADATA = "model.bin", "config.json", "metadata.json"
REVISIONS = range(2, 8)
"""Revisions of the specification with the names in `IN_LAYER`. CTranslate2 writes 7."""

PACKAGED = re.compile(
    r"[^/\\]+/(?:metadata\.json|sentencepiece\.model|bpe\.model|model/[\w.-]+\.(?:bin|json|txt))"
)
"""Names of the files to extract from a package of Argos Translate."""

LANGUAGES = re.compile(r".*-([a-z]{2,3})-([a-z]{2,3})")
"""Folder names of quickmt. They end with both language codes. On the Hub, the folder's parents have them."""

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
    "encoder/embeddings_0/weight": SOURCE,
    "encoder/embeddings/weight": SOURCE,  # before revision 5
    "decoder/embeddings/weight": TARGET,
    "decoder/projection/weight": OUTPUT,
    "decoder/projection/bias": BIAS,
    "encoder/layer_norm/gamma": "encoder.layer_norm.weight",
    "encoder/layer_norm/beta": "encoder.layer_norm.bias",
    "decoder/layer_norm/gamma": "decoder.layer_norm.weight",
    "decoder/layer_norm/beta": "decoder.layer_norm.bias",
    "encoder/position_encodings/encodings": f"{TABLES['source_embedding']}.weight",
    "decoder/position_encodings/encodings": f"{TABLES['target_embedding']}.weight",
}
"""Common names of other tensors, by CTranslate2's."""

ACTIVATIONS: Mapping[int, Activation] = {0: "relu", 1: "gelu_tanh", 2: "swish", 3: "gelu"}
"""Our `model.activation` by the number in CTranslate2."""

IRRELEVANT = ("embeddings_merge", "alignment_layer", "alignment_heads")
"""Flags that change no translation."""

INNER, IS_BIAS = re.compile(r"\.fc\w+\.weight$"), re.compile(r"_proj\.bias$")
TOLERANCE = 0.01
"""Maximum difference between sinusoids. Converters compute them in fp32 and may round them to bf16."""

LONGEST = 256
"""Maximum target tokens in CTranslate2 by default."""

SEARCH: Mapping[str, Any] = {
    **ctranslate2_export.SEARCH,
    "beam": 2,
    "min_length": 1,
    "cap_ratio": 0.0,
    "cap_extra": LONGEST,
    "unknown": True,
}
"""Defaults of CTranslate2."""

ARGOS_SEARCH = {**SEARCH, "beam": 4, "length_penalty": argos_export.LENGTH_PENALTY, "unknown": False}
"""Settings of Argos Translate. It replaces unknown tokens by source tokens, so nmt avoids them."""


def read(folder: Path, options: ImportOptions) -> Foreign:
    """Return the model in a folder of CTranslate2, with SentencePiece models beside `model.bin`. Raise
    `UserError` for missing files, or a model that nmt cannot express."""
    search = {**SEARCH, "beam": 5} if (folder / QUICKMT[0]).is_file() else SEARCH
    path = folder.resolve()
    matches = (LANGUAGES.fullmatch(one.name) for one in (path, *path.parents[:2]))
    pairs = [(match[1], match[2]) for match in matches if match]
    return _read(folder, folder, [*pairs, ("", "")][0], options, search)


def read_package(path: Path, options: ImportOptions) -> Foreign:
    """Return the model of a package of Argos Translate, an `.argosmodel` or an installed folder. Raise
    `UserError` for another package, a hostile or damaged file, or a model that nmt cannot express."""
    if path.is_dir():
        return _read_package(path, options)
    with tempfile.TemporaryDirectory() as unpacked:
        with opened(path) as package:
            needed = [info for info in package.infolist() if PACKAGED.fullmatch(info.filename)]
            refuse_hostile(path, needed)
            package.extractall(unpacked, needed)
        folders = [*Path(unpacked).iterdir()]
        if len(folders) != 1:
            raise UserError(f"{path} has {len(folders)} folders with a model. A package has one.")
        return _read_package(folders[0], options)


def _read_package(folder: Path, options: ImportOptions) -> Foreign:
    """Return the model in the folder of a package of Argos Translate."""
    metadata = read_settings(folder / METADATA)
    languages = metadata.text("from_code", ""), metadata.text("to_code", "")
    return _read(folder / "model", folder, languages, options, ARGOS_SEARCH, "Argos Translate")


def _read(
    folder: Path,
    beside: Path,
    languages: tuple[str, str],
    options: ImportOptions,
    search: Mapping[str, Any],
    kind: str = "CTranslate2",
) -> Foreign:
    """Return the model in `folder`, with the SentencePiece models in the folder `beside`. `search` has the
    settings of the toolkit `kind`, and `languages` those that the model records, or ""."""
    where = folder / WEIGHTS
    if not where.is_file():
        raise UserError(f"{where} is missing. Copy the whole folder again.")
    binary = read_binary(where)
    if binary.specification != "TransformerSpec" or binary.revision not in REVISIONS:
        raise UserError(
            f"{where} is a {binary.specification} of revision {binary.revision}. nmt import supports "
            f"TransformerSpec, an encoder and a decoder, of revision {REVISIONS[0]} to {REVISIONS[-1]}."
        )
    flags = {name: tensor.item() for name, tensor in binary.tensors.items() if not tensor.dim()}
    settings = _settings(folder, binary.version, flags)
    arrays = {name: tensor for name, tensor in binary.tensors.items() if tensor.dim()}
    tensors = common_tensors(arrays, _usual_names, str(where))
    flagged = _flagged(flags, tensors[OUTPUT].shape[1], str(where))
    positions, alternating = _positions(tensors, flags, flagged, options)
    zeros = flagged["start"] == "zeros"
    # Users of Marian's models, which start with zeros, add the end token themselves.
    bare = not zeros and not settings.flag("add_source_eos", False)
    rows = len(tensors.get(SOURCE, tensors[OUTPUT])), len(tensors[OUTPUT])
    sides = vocabularies(folder, settings, rows, _excluded(tensors), zeros=zeros, bare=bare)
    recorded = [settings.text(f"{side}_lang", lang) for side, lang in zip(SIDES, languages, strict=True)]
    pair = options.languages(recorded[0], recorded[1], beside)
    tokenizers = tokenizers_beside(beside, pair, sides, bare)
    config = _config(tensors, {**flagged, **positions}, settings, sides["source"] is sides["target"])
    if left := [name for name, value in flags.items() if value and not name.endswith(IRRELEVANT)]:
        raise UserError(f"{where} has {left[0]}, which nmt import does not support.")
    imported = import_tensors(tensors, str(where), config, tokenizers, alternating=alternating)
    notes = [POSITIONS_NOTE] if zeros and config.positions == "sinusoidal" else []
    return Foreign(kind, config, tokenizers, imported, search, min(LONGEST, config.limit or LONGEST), notes)


def _settings(folder: Path, version: int, flags: dict[str, Any]) -> ForeignSettings:
    """Return the settings in `config.json`. Up to `version` 5, `flags` have some of them, which are removed.
    Raise `UserError` for an unsupported setting."""
    path = folder / CONFIG
    described = read_json(path) if path.is_file() else {}
    settings = ForeignSettings(described, str(path))
    if version < 6:
        bos, eos = (bool(flags.pop(f"with_source_{name}", 0)) for name in ("bos", "eos"))
        start = "<s>" if flags.pop("with_target_bos", 1) else "</s>"
        old = {"add_source_bos": bos, "add_source_eos": eos, "decoder_start_token": start}
        settings = ForeignSettings({**described, **old}, str(path))
    settings.demand("quantization_type", 0)
    settings.demand("add_source_bos", False)
    return settings


def _usual_names(arrays: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors under their common names, without zero biases. Split joined projections. Add zeros
    for missing biases of attention, and of feed-forward layers, if the model has others."""
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
    tensors = without_zero_biases(tensors)
    inner = [name.removesuffix("weight") for name in tensors if INNER.search(name)]
    if any(f"{name}bias" in tensors for name in inner):
        tensors = {f"{name}bias": torch.zeros(len(tensors[f"{name}weight"])) for name in inner} | tensors
    return with_attention_biases(tensors) if any(map(IS_BIAS.search, tensors)) else tensors


def _flagged(flags: dict[str, Any], width: int, where: str) -> dict[str, Any]:
    """Return our settings that follow from `flags`, and remove those. Raise `UserError`, which names `where`,
    for a value that nmt does not support."""
    heads = int(_only(flags, "num_heads", 8))
    activation, scale = _only(flags, "activation", 0), _only(flags, "scale_embeddings", 1)
    head_width = int(_only(flags, "head_dim", 0)) or width // max(heads, 1)
    usual = head_width**-0.5
    # An integer says whether to scale by sqrt(width). Any other number is the scale.
    is_scaled = bool(scale) if isinstance(scale, int) else math.isclose(scale, width**0.5, rel_tol=1e-3)
    for name, value, *supported in (
        ("activation", activation, *ACTIVATIONS),
        ("scale_embeddings", 1 if is_scaled else scale, 0, 1),
        ("num_heads_kv", _only(flags, "num_heads_kv", heads), heads),
        ("queries_scale", round(_only(flags, "queries_scale", usual), 4), round(usual, 4)),
    ):
        if value not in supported:
            listed = ", ".join(map(str, supported))
            raise UserError(f"{where}: {name} is {value} in the weights. nmt import supports {listed}.")
    own_width = head_width if head_width * heads != width else 0
    return {
        "heads": heads,
        "key_width": own_width,
        "value_width": own_width,
        "norm": "pre" if _only(flags, "pre_norm", 1) else "post",
        "activation": ACTIVATIONS[int(activation)],
        "scale_embeddings": is_scaled,
        "start": "zeros" if _only(flags, "start_from_zero_embedding", 0) else "mark",
    }


def _config(
    tensors: dict[str, Tensor], flagged: Mapping[str, Any], settings: ForeignSettings, joint: bool
) -> ModelConfig:
    """Return the architecture. `flagged` has settings of `_flagged` and `_positions`. `joint` means that the
    sides share a vocabulary."""
    stacks = [f"{stack}.layers." for stack in ("encoder", "decoder")]
    layers = [len({name.split(".")[2] for name in tensors if name.startswith(stack)}) for stack in stacks]
    is_rms = "encoder.layers.0.self_attn_layer_norm.bias" not in tensors
    return ModelConfig(
        encoder_layers=layers[0],
        decoder_layers=layers[1],
        width=tensors[OUTPUT].shape[1],
        feed_forward=len(tensors.get("encoder.layers.0.fc1.weight", tensors[OUTPUT])),
        norm_kind="rms" if is_rms else "layer",
        norm_epsilon=settings.number("layer_norm_epsilon", 1e-6 if is_rms else 1e-5),
        gated="encoder.layers.0.fc1_value.weight" in tensors,
        feed_forward_bias="encoder.layers.0.fc1.bias" in tensors,
        attention_bias=any(map(IS_BIAS.search, tensors)),
        output_bias=BIAS in tensors,
        tie=_tie(tensors, joint),
        **flagged,
    )


def _tie(tensors: Mapping[str, Tensor], joint: bool) -> Literal["all", "decoder", "embeddings", "none"]:
    """Return which of the embedding and output matrices are equal."""
    output, source, target = (tensors.get(name, torch.empty(0)) for name in (OUTPUT, SOURCE, TARGET))
    if torch.equal(target, output):
        return "all" if joint and torch.equal(source, output) else "decoder"
    return "embeddings" if joint and torch.equal(source, target) else "none"


def _positions(
    tensors: dict[str, Tensor], flags: dict[str, Any], flagged: Mapping[str, Any], options: ImportOptions
) -> tuple[dict[str, Any], bool]:
    """Return our settings of positions, and whether sines and cosines alternate. Remove tables of sinusoids
    from `tensors`. Other tables are learned, and cut to the rows that both sides have. Raise `UserError` for
    rotary or relative positions of another kind than ours."""
    rotary = [
        _only(flags, f"rotary_{name}", default)
        for name, default in (("dim", -1), ("base", 10_000), ("interleave", 0))
    ]
    head_width = flagged["key_width"] or tensors[OUTPUT].shape[1] // max(flagged["heads"], 1)
    farthest = _only(flags, "relative_attention_max_distance", FARTHEST)
    if rotary[0] not in (-1, 0, head_width) or rotary[1:] != [10_000, 0] or farthest != FARTHEST:
        raise UserError(
            f"the model has rotary positions of {rotary} (dim, base, interleave), or relative ones up to "
            f"{farthest}. nmt import supports [0, 10000, 0] and {FARTHEST}."
        )
    if "encoder.relative_bias" in tensors or rotary[0] >= 0:
        return {"positions": "rotary" if rotary[0] >= 0 else "relative"}, True
    names = [name for table in TABLES.values() if (name := f"{table}.weight") in tensors]
    if not names:  # CTranslate2 adds sinusoids
        return {"positions": "marian", "first_position": 1}, False
    tables = [tensors.pop(name) for name in names]
    rows, width = min(map(len, tables)), tables[0].shape[-1]
    kinds: Sequence[Positions] = ("sinusoidal", "marian") if width > 2 and width % 2 == 0 else ()
    for kind, first in product(kinds, range(3)):
        table = sinusoids(min(rows, LONGEST), width, kind, first)
        for alternating, expected in ((True, table), (False, to_halves(table))):
            if all(_close(table, expected) for table in tables):
                kind = POSITIONS[options.positions] if options.positions else kind
                return {"positions": kind, "first_position": first}, alternating
    tensors |= {name: table[:rows] for name, table in zip(names, tables, strict=True)}
    return {"positions": "learned", "longest": rows}, True


def _close(table: Tensor, expected: Tensor) -> bool:
    """Return whether the first rows of `table` are `expected`, up to rounding."""
    first = table[: len(expected)].float()
    return first.shape == expected.shape and bool((first - expected).abs().max() <= TOLERANCE)


def _only(flags: dict[str, Any], name: str, default: float) -> float:
    """Remove a flag of one or all parts of the model, and return its only value. Raise `UserError` if it is
    not a number, or if parts differ."""
    values = {flags.pop(key) for key in [*flags] if key.rpartition("/")[2] == name} or {default}
    value: float = values.pop()
    if values or not math.isfinite(value):
        raise UserError(
            f"{name} is not the same number in all parts of the model, so nmt does not support it."
        )
    return value


def _excluded(tensors: dict[str, Tensor]) -> set[int]:
    """Return the entries with `EXCLUDED_BIAS`. If all others have a bias of 0, remove it from `tensors`."""
    bias = tensors.get(BIAS)
    if bias is None or bias.dim() != 1:
        return set()
    is_excluded = bias <= 0.9 * EXCLUDED_BIAS  # perhaps rounded to bf16
    if is_excluded.any() and not bias[~is_excluded].any():
        del tensors[BIAS]
    return {*is_excluded.nonzero().flatten().tolist()}
