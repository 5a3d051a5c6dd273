"""Read T5, mT5 and MADLAD-400 from folders of `transformers`.

Attention in T5 has no scale, so the weights of queries get its inverse. In MADLAD-400, a code at the start of
the source, such as `<2de>`, names the target language.
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from nmt_cli.interop.foreign import (
    Activation,
    Foreign,
    ImportOptions,
    foreign_tokenizers,
    foreign_vocabulary,
    of_many_languages,
    of_pieces,
    padded_entries,
)
from nmt_cli.interop.foreign_settings import ForeignSettings, read_spm
from nmt_cli.interop.weights import OUTPUT, SOURCE, TARGET, common_tensors, import_tensors
from nmt_cli.model.config import ModelConfig
from nmt_cli.model.self_positions import BUCKETS, FARTHEST
from nmt_cli.text.model_languages import MANY
from nmt_cli.text.subword_models.pieces import Pieces
from nmt_cli.text.tokenizer import SIDES
from nmt_cli.text.tokenizers import Tokenizers

KINDS = ("t5", "mt5")
"""Model types in `config.json`."""

SPM, CODE = "spiece.model", re.compile(r"<2\S+>")
LAYERS: Mapping[str, tuple[bool, Activation]] = {
    "relu": (False, "relu"),
    "gated-gelu": (True, "gelu_tanh"),
    "gated-silu": (True, "swish"),
}
"""For each `feed_forward_proj`, whether the layer is gated, and its activation."""

EMBEDDINGS = ("shared.weight", SOURCE, TARGET)
IN_LAYER = re.compile(r"(encoder|decoder)\.block\.(\d+)\.layer\.(\d)\.(.+)\.weight")
NORMS = {"encoder": ("self_attn", "final"), "decoder": ("self_attn", "encoder_attn", "final")}
"""Beginnings of the common names of the norms in a layer."""

PARTS = {
    "SelfAttention.q": "self_attn.q_proj",
    "SelfAttention.k": "self_attn.k_proj",
    "SelfAttention.v": "self_attn.v_proj",
    "EncDecAttention.q": "encoder_attn.q_proj",
    "EncDecAttention.k": "encoder_attn.k_proj",
    "EncDecAttention.v": "encoder_attn.v_proj",
    "SelfAttention.o": "self_attn.out_proj",
    "EncDecAttention.o": "encoder_attn.out_proj",
    "DenseReluDense.wi": "fc1",
    "DenseReluDense.wi_0": "fc1",
    "DenseReluDense.wi_1": "fc1_value",
    "DenseReluDense.wo": "fc2",
}
"""The common names of the matrices in a layer."""

CODE_NOTE = "nmt translate chooses among {} languages with --target-lang"
PREFIX_NOTE = "T5 expects a prefix that names the task. Put it before each line"


def read(
    folder: Path, settings: ForeignSettings, tensors: Mapping[str, Tensor], options: ImportOptions
) -> Foreign:
    """Return the model in `folder`, without search settings.

    settings: the content of `config.json`.
    tensors: the weights by transformers' names.

    Raise `UserError` for unsupported settings, a missing or damaged file, and an unknown language.
    """
    settings.demand("relative_attention_num_buckets", BUCKETS)
    settings.demand("relative_attention_max_distance", FARTHEST)
    named = common_tensors(tensors, _renamed, str(folder))
    tied, rows = torch.equal(named[OUTPUT], named[SOURCE]), len(named[OUTPUT])
    scaled = _divides_output(settings)
    config = _config(settings)
    config = replace(config, scale_embeddings=tied and scaled, tie="all" if tied else "embeddings")
    if scaled:  # if tied, our embeddings are multiplied by the square root of the width again
        named[OUTPUT] = named[OUTPUT].float() * config.width**-0.5
    for name in [name for name in named if name.endswith("attn.q_proj.weight")]:
        named[name] = named[name].float() * config.d_k**0.5
    tokenizers = _tokenizers(folder, settings, rows, options)
    imported = import_tensors(named, str(folder), config, tokenizers)
    longest, codes = settings.integer("n_positions", 512), tokenizers.recipe.symbols
    kind, note = ("MADLAD-400", CODE_NOTE.format(len(codes))) if codes else ("T5", PREFIX_NOTE)
    return Foreign(kind, config, tokenizers, imported, longest=longest, notes=[note])


def _divides_output(settings: ForeignSettings) -> bool:
    """Return whether transformers divides the decoder's output by the square root of the width before the
    output projection."""
    # A wrong answer here changed log-probabilities by up to 6 nats, and not the best token.
    if settings.text("model_type") == "mt5":
        # transformers 5 never divides in mT5, and sets the flag in every file. Version 4 obeyed the flag.
        is_old = settings.text("transformers_version", "").startswith("4.")
        return is_old and settings.flag("tie_word_embeddings", False)
    # Newer versions of transformers write the first setting, older ones only the second.
    return settings.flag("scale_decoder_outputs", settings.flag("tie_word_embeddings", True))


def _config(settings: ForeignSettings) -> ModelConfig:
    """Return the architecture without ties. Raise `UserError` for an unsupported setting."""
    gated, activation = settings.choice("feed_forward_proj", LAYERS, "relu")
    layers, width = settings.integer("num_layers"), settings.integer("d_kv", 64)
    return ModelConfig(
        encoder_layers=layers,
        decoder_layers=settings.integer("num_decoder_layers", layers),
        width=settings.integer("d_model"),
        feed_forward=settings.integer("d_ff"),
        heads=settings.integer("num_heads"),
        key_width=width,
        value_width=width,
        norm="pre",
        norm_kind="rms",
        norm_epsilon=settings.number("layer_norm_epsilon", 1e-6),
        activation=activation,
        gated=gated,
        feed_forward_bias=False,
        positions="relative",
        residual_dropout=settings.number("dropout_rate", 0.1),
        attention_dropout=settings.number("dropout_rate", 0.1),
        activation_dropout=settings.number("dropout_rate", 0.1),
    )


def _renamed(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors under their common names.

    If the output projection is missing, it is the embedding. Tensors with unknown names keep them, and so do
    embeddings that differ from the first one, so that the import refuses them.
    """
    named: dict[str, Tensor] = {}
    embeddings = [tensors[name] for name in EMBEDDINGS if name in tensors]
    for name, tensor in tensors.items():
        if match := IN_LAYER.fullmatch(name):
            stack, layer, number, part = match.groups()
            common = f"{stack}.layers.{layer}.{PARTS.get(part, part)}.weight"
            if part == "layer_norm" and int(number) < len(NORMS[stack]):
                common = f"{stack}.layers.{layer}.{NORMS[stack][int(number)]}_layer_norm.weight"
            # Only the first layer of a stack has one, and all its layers use it.
            if part == "SelfAttention.relative_attention_bias" and layer == "0":
                common = f"{stack}.relative_bias"
            named[common] = tensor
        elif name not in EMBEDDINGS or not torch.equal(tensor, embeddings[0]):
            named[name.replace(".final_layer_norm.", ".layer_norm.")] = tensor
    if embeddings:
        named[SOURCE] = embeddings[0]
        named[OUTPUT] = named.pop("lm_head.weight", embeddings[0])
    return named


def _tokenizers(folder: Path, settings: ForeignSettings, rows: int, options: ImportOptions) -> Tokenizers:
    """Return the tokenisers in `folder`, with a vocabulary padded to `rows`, the model's number of entries.

    If the vocabulary has language codes, each source begins with that of the target language. Raise
    `UserError` for a missing or damaged file, for an unknown language, and for more than `rows` pieces.
    """
    content = read_spm(folder / SPM)
    model = Pieces(content)
    padding = settings.integer("pad_token_id", 0)
    vocabulary = foreign_vocabulary(
        padded_entries(model.written, rows, folder),
        end=settings.integer("eos_token_id", 1),
        unknown=model.processor.unk_id(),
        start=settings.integer("decoder_start_token_id", padding),
        never=(padding, *(i for i, piece in enumerate(model.entries) if piece is None)),
    )
    codes = tuple(entry for entry in vocabulary.entries if CODE.fullmatch(entry))
    usual = options.languages("", "", folder, otherwise=MANY if codes else "")
    recipe = of_many_languages(usual, codes, "source", folder) if codes else of_pieces(usual)
    models, sides = dict.fromkeys(SIDES, content), dict.fromkeys(SIDES, vocabulary)
    return foreign_tokenizers(recipe, models, sides)
