"""Export CTranslate2 models through the specification that its package offers to converters."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy
import torch
from torch import Tensor

from nmt_cli.checkpoints.model_folder import Model, weights
from nmt_cli.interop.exporters import exported
from nmt_cli.interop.importers import ctranslate2 as importer
from nmt_cli.interop.weights import BIAS, LAYER, OUTPUT, export_tensors
from nmt_cli.model.embedding import sinusoids
from nmt_cli.model.self_positions import FARTHEST
from nmt_cli.model.transformer import Transformer
from nmt_cli.runtime.devices import Precision
from nmt_cli.text.tokenizer import SIDES

NAME, SEARCH = "CTranslate2", importer.STOPPING
POSITIONS = 1024
"""Rows of the exported table of sinusoids. CTranslate2 truncates longer sentences."""

POSITION_KINDS = ("sinusoidal", "marian", "learned", "rotary", "relative")
"""Supported values of `model.positions`."""

KINDS: Mapping[Precision, str | None] = {"fp32": None, "fp16": "float16", "int8": "int8"}
"""CTranslate2's name of each precision. None keeps the weights as they are."""

PRECISIONS: Sequence[Precision] = (*KINDS,)
MODULES = {part: module for module, parts in importer.IN_LAYER.items() for part in parts}
OUTSIDE_LAYERS = {ours: theirs for theirs, ours in importer.OUTSIDE_LAYERS.items()}
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


def losses(model: Model) -> list[str]:
    """Return a message for each feature of the model that CTranslate2 lacks, or []. Check settings by
    `model_losses`. Check that values are as wide as keys, and that both sides have the same end token."""
    tokenizers = model.identity.tokenizers
    vocabularies = (tokenizers.source.vocabulary, tokenizers.target.vocabulary)
    ends = {exported.named_entries(vocabulary)[vocabulary.end] for vocabulary in vocabularies}
    config = model.identity.config
    messages = [
        message
        for stack in (config, config.of_decoder)
        for message in exported.model_losses(
            stack,
            modern=True,
            d_v=stack.d_k,
            activation=tuple(importer.ACTIVATIONS.values()),
            positions=POSITION_KINDS,
            norm=("post", "pre"),
            norm_kind=("layer", "rms"),
        )
    ]
    return [*dict.fromkeys(messages)] + (["the two sides have different end tokens"] if len(ends) > 1 else [])


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
    specs = exported.package("ctranslate2", "This format").specs
    config = model.config
    activations = {ours: number for number, ours in importer.ACTIVATIONS.items()}
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
    tensors = export_tensors(weights(model), config, alternating=True)
    if excluded := list(model.target_vocabulary.never):
        bias = tensors.get(BIAS, torch.zeros(len(tensors[OUTPUT]))).clone()
        bias[excluded] = exported.EXCLUDED_BIAS
        tensors[BIAS] = bias
    for name in ("encoder", "decoder"):
        stack, relative = getattr(spec, name), config.positions == "relative"
        stack.scale_embeddings = config.scale_embeddings
        for layer in stack.layer if relative else ():
            layer.self_attention.relative_attention_bias = tensors[f"{name}.relative_bias"].numpy()
            layer.self_attention.relative_attention_max_distance = numpy.int32(FARTHEST)
        if config.positions in ("sinusoidal", "marian"):
            table = sinusoids(POSITIONS, config.width, config.positions, config.first_position)
            stack.position_encodings.encodings = table.numpy()
    for name, array in _arrays(tensors).items():
        module, _, kind = name.rpartition("/")
        setattr(specs.model_spec.index_spec(spec, module), kind, array)
    spec.config.layer_norm_epsilon = config.norm_epsilon
    return spec


def _arrays(tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    """Return copies of `tensors`, which have common names, by CTranslate2's names. Join the parts of a
    module. CTranslate2 quantises arrays in place."""
    parts: dict[str, list[Tensor]] = {}
    for name, tensor in tensors.items():
        if name.endswith(".relative_bias"):
            continue
        if match := LAYER.fullmatch(name):
            module, kind = MODULES[match[3]], match[4]
            kind = NORM_KINDS[kind] if module.endswith("layer_norm") else kind
            name = f"{match[1]}/layer_{match[2]}/{module}/{kind}"
        parts.setdefault(OUTSIDE_LAYERS.get(name, name), []).append(tensor)
    return {name: torch.cat(tensors).numpy() for name, tensors in parts.items()}


def translate(folder: Path, lines: list[str]) -> list[str]:
    """Return each line's translation by the export in `folder`, with a beam of 4 on the CPU."""
    return translated(folder, lines, length_penalty=1.0, disable_unk=True)


def translated(folder: Path, lines: list[str], **options: object) -> list[str]:
    """Return each line's translation by the model in `folder`, with a beam of 4 on the CPU, in its own
    precision. `options` go to `translate_batch`. Raise `UserError` without CTranslate2."""
    from nmt_cli.text.subword_models.pieces import Pieces

    source, target = (Pieces((folder / name).read_bytes()).processor for name in exported.SPMS.values())
    translator = exported.package("ctranslate2", "This format").Translator(
        str(folder), device="cpu", intra_threads=1, compute_type="default"
    )
    options |= {"beam_size": 4, "max_decoding_length": exported.LONGEST_CHECKED}
    results = translator.translate_batch(source.encode(lines, out_type=str), **options)
    return [str(target.decode(result.hypotheses[0])) for result in results]
