"""A model of ours as CTranslate2's, through the specification that its package offers to converters."""

import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy

from nmt_cli.checkpoints.model_folder import Model, weights
from nmt_cli.errors import UserError
from nmt_cli.interop.exporters.exported import model_losses, named_entries, travelling
from nmt_cli.model.config import ModelConfig
from nmt_cli.model.positions import sinusoids
from nmt_cli.model.transformer import Transformer
from nmt_cli.text.vocabulary import Vocabulary

POSITIONS = 1024
"""Its table of sinusoids has so many rows, and longer sentences are cut."""

KINDS = {"fp32": None, "fp16": "float16", "int8": "int8"}
ACTIVATIONS = {"relu": "RELU", "gelu": "GELU", "swish": "SWISH"}
NEVER = -1e4
"""The bias of entries that may never be produced."""

README = """# A translation model for CTranslate2

    import ctranslate2, sentencepiece

    translator = ctranslate2.Translator(".")
    pieces = sentencepiece.SentencePieceProcessor(model_file="source.spm").encode("A sentence.", out_type=str)
    found = translator.translate_batch([pieces], disable_unk=True)[0].hypotheses[0]
    print(sentencepiece.SentencePieceProcessor(model_file="target.spm").decode(found))

Written by `nmt export`. The end mark is added to the source by itself. Unused entries of the
vocabulary get no probability here. nmt counts them, so its scores may differ by some 0.001 a token.
"""


def losses(model: Model) -> list[str]:
    """What it can't do as the model does."""
    tokenizers = model.identity.tokenizers
    ends = {
        named_entries(known)[known.end]
        for known in (tokenizers.source.vocabulary, tokenizers.target.vocabulary)
    }
    found = model_losses(model.identity.config, any_epsilon=True)
    return found + (["its sides have two end marks"] if len(ends) > 1 else [])


def write(model: Model, folder: Path, precision: str) -> list[str]:
    """Write the files into `folder`; returns what whoever uses them should know."""
    tokenizers = model.identity.tokenizers
    spec = specification(model)
    spec.validate()
    spec.optimize(quantization=KINDS[precision])
    spec.save(str(folder))
    for name, side in (("source.spm", tokenizers.source), ("target.spm", tokenizers.target)):
        (folder / name).write_bytes(travelling(side, tokenizers.recipe))
    (folder / "README.md").write_text(README)
    return []


def filled(model: Transformer) -> Any:
    """The specification of its layers with its weights, but without vocabularies."""
    specs = _package().specs
    config = model.config
    activation = getattr(specs.common_spec.Activation, ACTIVATIONS[config.activation])
    spec = specs.TransformerSpec.from_config(
        (config.encoder_layers, config.decoder_layers),
        config.heads,
        pre_norm=config.norm == "pre",
        activation=activation,
    )
    # Copies: CTranslate2 rounds what it is given in place.
    given = {name: tensor.detach().numpy().copy() for name, tensor in weights(model).items()}
    output = given["output_matrix"]
    target = given.get("target_embedding.matrix", output)
    spec.encoder.embeddings[0].weight = given.get("source_embedding.matrix", target)
    spec.decoder.embeddings.weight, spec.decoder.projection.weight = target, output
    never = list(model.target_vocabulary.never)
    if never or "output_bias" in given:
        bias = given.get("output_bias", numpy.zeros(len(output), numpy.float32)).copy()
        bias[never] = NEVER
        spec.decoder.projection.bias = bias
    for stack, name in ((spec.encoder, "encoder"), (spec.decoder, "decoder")):
        _fill_stack(stack, name, given, config)
    spec.config.layer_norm_epsilon = config.norm_epsilon
    return spec


def specification(model: Model) -> Any:
    """All that its file is made of."""
    spec, tokenizers = filled(model.transformer), model.identity.tokenizers
    known = tokenizers.target.vocabulary
    spec.register_source_vocabulary(named_entries(tokenizers.source.vocabulary))
    spec.register_target_vocabulary(named_entries(known))
    _set_marks(spec, known, model.transformer.start)
    return spec


def _package() -> Any:
    try:
        return importlib.import_module("ctranslate2")
    except ImportError as error:
        raise UserError(
            "CTranslate2 is not installed, and writes these files: pip install ctranslate2."
        ) from error


def _set_marks(spec: Any, target: Vocabulary, start: int | None) -> None:
    entries = named_entries(target)
    spec.config.unk_token = entries[target.unknown]
    spec.config.bos_token = spec.config.eos_token = entries[target.end]
    spec.config.decoder_start_token = entries[target.end if start is None else start]
    spec.config.add_source_eos = True
    if start is None:
        spec.decoder.start_from_zero_embedding = True


def _fill_stack(stack: Any, name: str, given: dict[str, Any], config: ModelConfig) -> None:
    table = given.get(f"{'source' if name == 'encoder' else 'target'}_embedding.positions.table")
    if table is None:
        table = sinusoids(POSITIONS, config.width, config.positions, config.first_position).numpy()
    stack.position_encodings.encodings = table
    if config.norm == "pre":
        stack.layer_norm.gamma, stack.layer_norm.beta = (
            given[f"{name}_norm.weight"],
            given[f"{name}_norm.bias"],
        )
    for number, layer in enumerate(stack.layer):
        for to, place in _places(layer):
            weight, bias = (given.get(f"{name}.{number}.{place}.{kind}") for kind in ("weight", "bias"))
            if place.endswith("norm"):
                to.gamma, to.beta = weight, bias
            else:
                to.weight = weight
                if bias is not None:
                    to.bias = bias


def _places(layer: Any) -> Iterator[tuple[Any, str]]:
    """Each part of a layer, and what ours is called."""
    own = layer.self_attention
    yield from zip(own.linear, ("attention.query_key_value", "attention.output"), strict=True)
    yield own.layer_norm, "after_attention.norm"
    if hasattr(layer, "attention"):
        places = ("cross.query", "cross.key_value", "cross.output")
        yield from zip(layer.attention.linear, places, strict=True)
        yield layer.attention.layer_norm, "after_cross.norm"
    yield layer.ffn.linear_0, "feed_forward.inner"
    yield layer.ffn.linear_1, "feed_forward.outer"
    yield layer.ffn.layer_norm, "after_feed_forward.norm"


def translate(folder: Path, lines: list[str]) -> list[str]:
    """What it makes of lines, as its users call it."""
    return translated(folder, lines, "default", length_penalty=1.0, disable_unk=True)


def translated(folder: Path, lines: list[str], kind: str, **asked: object) -> list[str]:
    """What it makes of lines with a beam of 4, computed in its `kind`; `asked` are its words for the rest."""
    from nmt_cli.text.subword_models.pieces import Pieces

    source, target = (Pieces((folder / name).read_bytes()) for name in ("source.spm", "target.spm"))
    translator = _package().Translator(str(folder), device="cpu", intra_threads=1, compute_type=kind)
    found = translator.translate_batch([source.shown(line) for line in lines], beam_size=4, **asked)
    return [target.text_of(each.hypotheses[0]) for each in found]
