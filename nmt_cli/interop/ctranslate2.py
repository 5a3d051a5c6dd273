"""Read and write models of CTranslate2.

`nmt import` takes folders as its converters write them, such as quickmt's. `nmt export` fills the
specification that its package offers to converters. Both directions use the same tables of names.
"""

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy
import torch
from torch import Tensor

from nmt_cli.checkpoints.model_folder import LoadedModel
from nmt_cli.checkpoints.model_folder import weights as weights_of
from nmt_cli.errors import UserError
from nmt_cli.interop import conventions, m2m100, weights
from nmt_cli.interop.conventions import EXCLUDED_BIAS, OVER_LENGTHS
from nmt_cli.interop.ctranslate2_binary import read_binary
from nmt_cli.interop.ctranslate2_text import (
    QUICKMT,
    language_codes,
    tokenizers_beside,
    vocabularies,
)
from nmt_cli.interop.foreign import POSITIONS, Activation, Foreign, ImportOptions
from nmt_cli.interop.foreign_settings import ForeignSettings, read_settings_if_any
from nmt_cli.interop.huggingface import POSITIONS_NOTE
from nmt_cli.interop.shortlists import read_vmap
from nmt_cli.model.config import ModelConfig
from nmt_cli.model.embedding import sinusoids
from nmt_cli.model.self_positions import FARTHEST
from nmt_cli.model.transformer import Transformer
from nmt_cli.runtime.devices import Precision
from nmt_cli.text.model_languages import MANY
from nmt_cli.text.tokenizer import SIDES

WEIGHTS, CONFIG, VMAP = "model.bin", "config.json", "vmap.txt"
REVISIONS = range(2, 8)
"""Revisions of the specification with the names in `IN_LAYER`. CTranslate2 writes 7."""

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
    "with_source_bos",
    "with_source_eos",
    "with_target_bos",
    "start_from_zero_embedding",
    "pre_norm",
    "num_heads",
    "num_heads_kv",
    "head_dim",
    "queries_scale",
    "activation",
    "scale_embeddings",
    "rotary_dim",
    "rotary_base",
    "rotary_interleave",
    "relative_attention_max_distance",
    "embeddings_merge",
    "alignment_layer",
    "alignment_heads",  # change no translation
)
"""Variables without axes that a supported model may have."""

LONGEST = 256
"""Maximum target tokens in CTranslate2 by default."""

STOPPING: Mapping[str, Any] = {**OVER_LENGTHS, "stop_early": True}
"""The toolkit stops when the number of finished hypotheses reaches the beam size."""

DEFAULTS: Mapping[str, Any] = {
    **STOPPING,
    "beam": 2,
    "min_length": 1,
    "cap_ratio": 0.0,
    "cap_extra": LONGEST,
    "unknown": True,
}
"""Defaults of CTranslate2."""


def read(folder: Path, options: ImportOptions) -> Foreign:
    """Return the model in a folder of CTranslate2, with SentencePiece models beside `model.bin`.

    Raise `UserError` for missing files, or a model that nmt cannot express.
    """
    search = {**DEFAULTS, "beam": 5} if (folder / QUICKMT[0]).is_file() else DEFAULTS
    return read_model(folder, folder, ("", ""), options, search, "CTranslate2")


def read_model(
    folder: Path,
    beside: Path,
    languages: tuple[str, str],
    options: ImportOptions,
    search: Mapping[str, Any],
    kind: str,
) -> Foreign:
    """Return a model of CTranslate2.

    folder: the folder with the weights.
    beside: the folder with the SentencePiece models.
    languages: source and target as the package records them, or "".
    search: our search settings for those of the toolkit.
    kind: the name of the toolkit, shown to people.
    """
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
    pair = options.languages(*pair, beside, otherwise=MANY if codes else "")
    tokenizers = tokenizers_beside(beside, pair, sides, bare, codes)
    imported = weights.import_tensors(tensors, str(where), config, tokenizers, alternating=alternating)
    notes = [POSITIONS_NOTE] if zeros and config.positions == "sinusoidal" else []
    notes += [m2m100.NOTE.format(len(codes))] if codes else []
    longest = min(LONGEST, config.limit or LONGEST)
    vmap = folder / VMAP
    shortlist = read_vmap(vmap, tokenizers) if vmap.is_file() else None
    return Foreign(kind, config, tokenizers, imported, search, longest, notes, shortlist=shortlist)


def _flags(variables: Mapping[str, Tensor], where: str) -> ForeignSettings:
    """Return the variables without axes, such as the number of heads, by the last part of their names.

    Only `DECODER_HEADS` keeps its whole name, because the encoder may have another number. Raise `UserError`,
    which names the file `where`, for a variable that nmt does not support, and for one with two values.
    """
    flags: dict[str, Any] = {}
    for path, tensor in variables.items():
        name = path if path == DECODER_HEADS else path.rpartition("/")[2]
        # An unknown flag that is 0 switches nothing on.
        if not tensor.dim() and tensor and name not in FLAGS:
            raise UserError(f"{where} has {path}, which nmt import does not support.")
        if not tensor.dim() and flags.setdefault(name, tensor.item()) != tensor.item():
            raise UserError(f"{where}: {name} has two values, which nmt import does not support.")
    return ForeignSettings(flags, where)


def _settings(folder: Path, version: int, flags: ForeignSettings) -> ForeignSettings:
    """Return the settings in `config.json`. Before `version` 6, some of them are flags of the weights, and
    come from `flags`. Raise `UserError` for an unsupported setting."""
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
    """Return our settings that follow from `flags`. `width` is the width of the model. Raise `UserError` for
    a value that nmt does not support."""
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
    """Add the settings of positions to `described`. Return whether sines and cosines alternate.

    Tables of sinusoids are removed from `tensors`, since nmt computes them.
    """
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
    """Return the ids of entries that have the bias `EXCLUDED_BIAS`, so that search never produces them. If
    all other entries have a bias of 0, the model has no bias, and it is removed from `tensors`."""
    bias = tensors.get(weights.BIAS)
    if bias is None or bias.dim() != 1:
        return set()
    is_excluded = bias <= 0.9 * EXCLUDED_BIAS  # perhaps rounded to bf16
    if is_excluded.any() and not bias[~is_excluded].any():
        del tensors[weights.BIAS]
    return {*is_excluded.nonzero().flatten().tolist()}


# Export

NAME, SEARCH = "CTranslate2", STOPPING
TABLE_ROWS = 1024
"""Rows of the exported table of sinusoids. CTranslate2 truncates longer sentences."""

POSITION_KINDS = ("sinusoidal", "marian", "learned", "rotary", "relative")
"""Supported values of `model.positions`."""

QUANTIZATIONS: Mapping[Precision, str | None] = {"fp32": None, "fp16": "float16", "int8": "int8"}
"""CTranslate2's name of each precision. None keeps the weights as they are."""

PRECISIONS: Sequence[Precision] = (*QUANTIZATIONS,)
MODULES = {part: module for module, parts in IN_LAYER.items() for part in parts}
NAMES_OUTSIDE_LAYERS = {ours: theirs for theirs, ours in OUTSIDE_LAYERS.items()}
NORM_KINDS = {"weight": "gamma", "bias": "beta"}
"""CTranslate2's names of modules of a layer, of other tensors, and of the tensors of a norm."""

README = """# A translation model for CTranslate2

    import ctranslate2, sentencepiece

    translator = ctranslate2.Translator(".")
    pieces = sentencepiece.SentencePieceProcessor(model_file="source.spm").encode("A sentence.", out_type=str)
    hypothesis = translator.translate_batch([pieces], disable_unk=True)[0].hypotheses[0]
    print(sentencepiece.SentencePieceProcessor(model_file="target.spm").decode(hypothesis))

Written by `nmt export`. CTranslate2 appends the end token to the source. It gives no probability to unused
entries of the vocabulary, but nmt does, so scores may differ by about 0.001 per token.
"""


def losses(model: LoadedModel) -> list[str]:
    """Return a message for each feature of the model that CTranslate2 does not support. [] means that it
    supports all.

    Besides unsupported settings, these are values wider or narrower than keys, and different end tokens on
    both sides.
    """
    tokenizers = model.identity.tokenizers
    vocabularies = (tokenizers.source.vocabulary, tokenizers.target.vocabulary)
    ends = {conventions.named_entries(vocabulary)[vocabulary.end] for vocabulary in vocabularies}
    config = model.identity.config
    messages = [
        message
        for stack in (config, config.of_decoder)
        for message in conventions.model_losses(
            stack,
            modern=True,
            d_v=stack.d_k,
            activation=tuple(ACTIVATIONS.values()),
            positions=POSITION_KINDS,
            norm=("post", "pre"),
            norm_kind=("layer", "rms"),
        )
    ]
    return [*dict.fromkeys(messages)] + (["the two sides have different end tokens"] if len(ends) > 1 else [])


def write(model: LoadedModel, folder: Path, precision: Precision) -> list[str]:
    """Write model, SentencePiece models and a README into `folder`. Raise `UserError` without CTranslate2."""
    spec, tokenizers = filled(model.transformer), model.identity.tokenizers
    target, start = tokenizers.target.vocabulary, model.transformer.start
    entries = conventions.named_entries(target)
    spec.register_source_vocabulary(conventions.named_entries(tokenizers.source.vocabulary))
    spec.register_target_vocabulary(entries)
    spec.config.unk_token = entries[target.unknown]
    spec.config.bos_token = spec.config.eos_token = entries[target.end]
    spec.config.decoder_start_token = entries[target.end if start is None else start]
    spec.config.add_source_eos = not tokenizers.recipe.bare_source
    for side in SIDES:
        spec.config.add_attribute(f"{side}_lang", getattr(tokenizers.recipe, f"{side}_lang"))
    if start is None:
        spec.decoder.start_from_zero_embedding = True
    spec.validate()
    spec.optimize(quantization=QUANTIZATIONS[precision])
    spec.save(str(folder))
    conventions.write_sentencepiece(tokenizers, folder)
    (folder / "README.md").write_text(README)
    return []


def filled(model: Transformer) -> Any:
    """Return CTranslate2's specification with copies of the weights. It has no vocabularies yet.

    Entries that search never produces get the bias `EXCLUDED_BIAS`. Raise `UserError` if CTranslate2 is not
    installed.
    """
    specs = conventions.package("ctranslate2", "This format").specs
    config = model.config
    activations = {ours: number for number, ours in ACTIVATIONS.items()}
    options: dict[str, Any] = {
        "pre_norm": config.norm == "pre",
        "activation": specs.common_spec.Activation(activations[config.activation]),
        "ffn_glu": config.gated,
        "rms_norm": config.norm_kind == "rms",
        "relative_attention_bias": config.positions == "relative",
        "rotary_dim": 0 if config.positions == "rotary" else None,  # 0 is all channels of a head
        "rotary_interleave": False,
    }
    of_stacks = [
        (stack.heads, options | {"head_dim": stack.d_k if stack.d_k * stack.heads != stack.width else None})
        for stack in (config, config.of_decoder)
    ]
    (heads, of_encoder), (decoder_heads, of_decoder) = of_stacks
    encoder = specs.transformer_spec.TransformerEncoderSpec(config.encoder_layers, heads, **of_encoder)
    decoder = specs.transformer_spec.TransformerDecoderSpec(
        config.decoder_layers, decoder_heads, **of_decoder
    )
    spec = specs.TransformerSpec(encoder, decoder)
    tensors = weights.export_tensors(weights_of(model), config, alternating=True)
    if excluded := list(model.target_vocabulary.never):
        bias = tensors.get(weights.BIAS, torch.zeros(len(tensors[weights.OUTPUT]))).clone()
        bias[excluded] = conventions.EXCLUDED_BIAS
        tensors[weights.BIAS] = bias
    for name in ("encoder", "decoder"):
        stack, relative = getattr(spec, name), config.positions == "relative"
        stack.scale_embeddings = config.scale_embeddings
        for layer in stack.layer if relative else ():
            layer.self_attention.relative_attention_bias = tensors[f"{name}.relative_bias"].numpy()
            layer.self_attention.relative_attention_max_distance = numpy.int32(FARTHEST)
        if config.positions in ("sinusoidal", "marian"):
            table = sinusoids(TABLE_ROWS, config.width, config.positions, config.first_position)
            stack.position_encodings.encodings = table.numpy()
    for name, array in _arrays(tensors).items():
        module, _, kind = name.rpartition("/")
        setattr(specs.model_spec.index_spec(spec, module), kind, array)
    spec.config.layer_norm_epsilon = config.norm_epsilon
    return spec


def _arrays(tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    """Return copies of `tensors`, which have common names, by CTranslate2's names, with the projections of a
    module joined. They are copies because CTranslate2 quantises arrays in place."""
    parts: dict[str, list[Tensor]] = {}
    for name, tensor in tensors.items():
        if name.endswith(".relative_bias"):
            continue
        if match := weights.LAYER.fullmatch(name):
            module, kind = MODULES[match[3]], match[4]
            kind = NORM_KINDS[kind] if module.endswith("layer_norm") else kind
            name = f"{match[1]}/layer_{match[2]}/{module}/{kind}"
        parts.setdefault(NAMES_OUTSIDE_LAYERS.get(name, name), []).append(tensor)
    return {name: torch.cat(tensors).numpy() for name, tensors in parts.items()}


def translate(folder: Path, lines: list[str]) -> list[str]:
    """Return each line's translation by the export in `folder`, with a beam of 4 on the CPU."""
    return translated(folder, lines, length_penalty=1.0, disable_unk=True)


def translated(folder: Path, lines: list[str], **options: object) -> list[str]:
    """Return each line's translation by the model in `folder`, with a beam of 4 on the CPU.

    It is computed in the precision of the model. `options` go to `translate_batch`. Raise `UserError`
    without CTranslate2.
    """
    from nmt_cli.text.subword_models.pieces import Pieces

    source, target = (Pieces((folder / name).read_bytes()).processor for name in conventions.SPMS.values())
    translator = conventions.package("ctranslate2", "This format").Translator(
        str(folder), device="cpu", intra_threads=1, compute_type="default"
    )
    options |= {"beam_size": 4, "max_decoding_length": conventions.LONGEST_CHECKED}
    results = translator.translate_batch(source.encode(lines, out_type=str), **options)
    return [str(target.decode(result.hypotheses[0])) for result in results]
