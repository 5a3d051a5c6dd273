"""Export CTranslate2 models through the specification that its package offers to converters."""

import importlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy

from nmt_cli.checkpoints.model_folder import Model, weights
from nmt_cli.errors import UserError
from nmt_cli.interop.exporters import exported
from nmt_cli.model.config import ModelConfig
from nmt_cli.model.embedding import sinusoids
from nmt_cli.model.self_positions import FARTHEST
from nmt_cli.model.transformer import Transformer
from nmt_cli.runtime.devices import Precision
from nmt_cli.text.tokenizer import SIDES

NAME = "CTranslate2"
SEARCH: Mapping[str, Any] = {**exported.OVER_LENGTHS, "stop_early": True}
"""The toolkit stops when the number of finished hypotheses reaches the beam size."""

POSITIONS = 1024
"""Rows of the exported table of sinusoids. CTranslate2 truncates longer sentences."""

KINDS: Mapping[Precision, str | None] = {"fp32": None, "fp16": "float16", "int8": "int8"}
"""CTranslate2's name of each precision. None keeps the weights as they are."""

PRECISIONS: Sequence[Precision] = (*KINDS,)
ACTIVATIONS = {"gelu_tanh": "GELUTanh"}
"""CTranslate2's names of activations that are not ours in capital letters."""

README = """# A translation model for CTranslate2

    import ctranslate2, sentencepiece

    translator = ctranslate2.Translator(".")
    pieces = sentencepiece.SentencePieceProcessor(model_file="source.spm").encode("A sentence.", out_type=str)
    hypothesis = translator.translate_batch([pieces], disable_unk=True)[0].hypotheses[0]
    print(sentencepiece.SentencePieceProcessor(model_file="target.spm").decode(hypothesis))

Written by `nmt export`. CTranslate2 appends the end token to the source. It gives no probability to unused
entries of the vocabulary, but nmt does, so scores may differ by about 0.001 per token.
"""


def losses(model: Model) -> list[str]:
    """Return a message for each feature of the model that CTranslate2 lacks, or []. Check settings by
    `model_losses`. Check that values are as wide as keys, and that both sides have the same end token."""
    tokenizers = model.identity.tokenizers
    vocabularies = (tokenizers.source.vocabulary, tokenizers.target.vocabulary)
    ends = {exported.named_entries(vocabulary)[vocabulary.end] for vocabulary in vocabularies}
    config = model.identity.config
    messages = exported.model_losses(config, modern=True, d_v=config.d_k)
    return messages + (["the two sides have different end tokens"] if len(ends) > 1 else [])


def write(model: Model, folder: Path, precision: Precision) -> list[str]:
    """Write model, SentencePiece models and a README into `folder`. Raise `UserError` without CTranslate2."""
    spec, tokenizers = filled(model.transformer), model.identity.tokenizers
    target, start = tokenizers.target.vocabulary, model.transformer.start
    entries = exported.named_entries(target)
    spec.register_source_vocabulary(exported.named_entries(tokenizers.source.vocabulary))
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
    spec.optimize(quantization=KINDS[precision])
    spec.save(str(folder))
    exported.write_sentencepiece(tokenizers, folder)
    (folder / "README.md").write_text(README)
    return []


def filled(model: Transformer) -> Any:
    """Return CTranslate2's specification with copies of the weights, without vocabularies. Give entries that
    search never produces the bias `EXCLUDED_BIAS`. Raise `UserError` if CTranslate2 is not installed."""
    specs = _package().specs
    config = model.config
    options: dict[str, Any] = {
        "pre_norm": config.norm == "pre",
        "activation": specs.common_spec.Activation[
            ACTIVATIONS.get(config.activation, config.activation.upper())
        ],
        "ffn_glu": config.gated,
        "rms_norm": config.norm_kind == "rms",
        "relative_attention_bias": config.positions == "relative",
        "rotary_dim": 0 if config.positions == "rotary" else None,  # 0 is all channels of a head
        "rotary_interleave": False,
        "head_dim": config.d_k if config.d_k * config.heads != config.width else None,
    }
    encoder = specs.transformer_spec.TransformerEncoderSpec(config.encoder_layers, config.heads, **options)
    decoder = specs.transformer_spec.TransformerDecoderSpec(config.decoder_layers, config.heads, **options)
    spec = specs.TransformerSpec(encoder, decoder)
    # CTranslate2 quantises the arrays in place, so it gets copies.
    tensors_by_name = {name: tensor.detach().numpy().copy() for name, tensor in weights(model).items()}
    output = tensors_by_name["output_matrix"]
    source = tensors_by_name.get("source_embedding.matrix", output)
    tied = source if config.tie == "embeddings" else output
    spec.encoder.embeddings[0].weight, spec.decoder.projection.weight = source, output
    spec.decoder.embeddings.weight = tensors_by_name.get("target_embedding.matrix", tied)
    excluded = list(model.target_vocabulary.never)
    if excluded or "output_bias" in tensors_by_name:
        bias = tensors_by_name.get("output_bias", numpy.zeros(len(output), numpy.float32)).copy()
        bias[excluded] = exported.EXCLUDED_BIAS
        spec.decoder.projection.bias = bias
    for stack, name in ((spec.encoder, "encoder"), (spec.decoder, "decoder")):
        stack.scale_embeddings = config.scale_embeddings
        _fill_stack(stack, name, tensors_by_name, config)
    spec.config.layer_norm_epsilon = config.norm_epsilon
    return spec


def _package() -> Any:
    try:
        return importlib.import_module("ctranslate2")
    except ImportError as error:
        raise UserError("This format needs CTranslate2: pip install ctranslate2.") from error


def _fill_stack(stack: Any, name: str, tensors_by_name: dict[str, Any], config: ModelConfig) -> None:
    """Copy the weights of our stack `name`, "encoder" or "decoder", into `stack`, part of a specification.
    Include positions and, in a pre-norm model, the final norm."""
    if config.positions == "learned":
        side = "source" if name == "encoder" else "target"
        stack.position_encodings.encodings = tensors_by_name[f"{side}_embedding.positions.table"]
    elif config.positions not in ("rotary", "relative"):
        table = sinusoids(POSITIONS, config.width, config.positions, config.first_position)
        stack.position_encodings.encodings = table.numpy()
    for layer in stack.layer if config.positions == "relative" else ():
        layer.self_attention.relative_attention_bias = tensors_by_name[f"{name}_positions.table"]
        layer.self_attention.relative_attention_max_distance = numpy.int32(FARTHEST)
    for number, layer in enumerate(stack.layer if config.gated else ()):
        for part in ("weight", "bias") if config.feed_forward_bias else ("weight",):
            inner = f"{name}.{number}.feed_forward.inner.{part}"
            tensors_by_name[inner], gated_part = numpy.split(tensors_by_name[inner], 2)
            setattr(layer.ffn.linear_0_noact, part, gated_part)
    modules = {f"{name}_norm": stack.layer_norm} if config.norm == "pre" else {}
    for number, layer in enumerate(stack.layer):
        modules |= {f"{name}.{number}.{ours}": theirs for ours, theirs in _layer_modules(layer).items()}
    for ours, theirs in modules.items():
        kinds = ("gamma", "beta") if ours.endswith("norm") else ("weight", "bias")
        for kind, value in zip(kinds, ("weight", "bias"), strict=True):
            if (tensor := tensors_by_name.get(f"{ours}.{value}")) is not None:
                setattr(theirs, kind, tensor)


def _layer_modules(layer: Any) -> dict[str, Any]:
    """Return the modules of a specification's `layer`, by the names of our modules in a layer."""
    own = layer.self_attention
    modules = dict(zip(("attention.query_key_value", "attention.output"), own.linear, strict=True))
    modules["after_attention.norm"] = own.layer_norm
    if hasattr(layer, "attention"):
        names = ("cross.query", "cross.key_value", "cross.output")
        modules |= zip(names, layer.attention.linear, strict=True)
        modules["after_cross.norm"] = layer.attention.layer_norm
    linear = {"feed_forward.inner": layer.ffn.linear_0, "feed_forward.outer": layer.ffn.linear_1}
    return modules | linear | {"after_feed_forward.norm": layer.ffn.layer_norm}


def translate(folder: Path, lines: list[str]) -> list[str]:
    """Return each line's translation by the export in `folder`, with a beam of 4 on the CPU."""
    return translated(folder, lines, "default", length_penalty=1.0, disable_unk=True)


def translated(folder: Path, lines: list[str], kind: str, **options: object) -> list[str]:
    """Return each line's translation by the model in `folder`, with a beam of 4 on the CPU. `kind` is the
    compute type, such as "int8". `options` go to `translate_batch`. Raise `UserError` without CTranslate2."""
    from nmt_cli.text.subword_models.pieces import Pieces

    source, target = (Pieces((folder / name).read_bytes()).processor for name in exported.SPMS.values())
    translator = _package().Translator(str(folder), device="cpu", intra_threads=1, compute_type=kind)
    results = translator.translate_batch(source.encode(lines, out_type=str), beam_size=4, **options)
    return [str(target.decode(result.hypotheses[0])) for result in results]
