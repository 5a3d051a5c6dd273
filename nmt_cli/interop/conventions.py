"""Provide what all exports need: checks for unsupported features, SentencePiece models and named entries."""

import importlib
import json
import random
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nmt_cli.errors import UserError
from nmt_cli.interop.foreign import UNTOUCHED
from nmt_cli.model.config import ModelConfig
from nmt_cli.text.subword_models.charsmap import with_normalization
from nmt_cli.text.tokenizer import Side, Tokenizer
from nmt_cli.text.tokenizers import DESCRIPTION, Recipe, Tokenizers
from nmt_cli.text.vocabulary import Vocabulary

SPMS: Mapping[Side, str] = {"source": "source.spm", "target": "target.spm"}
"""File name of each side's SentencePiece model, in exports and in OPUS-MT's models."""

EXCLUDED_BIAS = -1e4
"""Output bias of entries that get no probability, such as padding."""

UNUSED = re.compile("<unused[0-9]+>")
"""Names of entries that are empty in our vocabularies."""

OVER_LENGTHS: Mapping[str, Any] = {"length_rule": "power", "length_penalty": 1.0, "reach": 1000.0}
"""Search settings for a score per token and a search until no hypothesis can become better."""

LONGEST_CHECKED = 60
"""Maximum tokens of a translation that `--check` compares."""

LARGEST_EPSILON = 1e-5
"""Up to this value, replacing epsilon by 1e-5 or 1e-6 changes log-probabilities by less than 1e-4 (from 1e-3,
by 2.5e-3)."""


def text_losses(tokenizers: Tokenizers) -> list[str]:
    """Return a message for each feature of the tokenisers that other toolkits do not have. [] means that
    nothing is lost.

    Such features are Moses, rare pieces that are split, and symbols that do not begin with ">>". For
    tokenisers other than SentencePiece, the only message names the kind.
    """
    recipe = tokenizers.recipe
    if recipe.kind != "sentencepiece":
        return [f"the tokeniser is {recipe.kind}, not SentencePiece"]
    messages = []
    if recipe.moses("source") or recipe.moses("target"):
        messages.append("text.words is moses, which other toolkits cannot apply")
    if any(json.loads(tokenizers.files[DESCRIPTION])["too_rare"].values()):
        messages.append(
            "rare pieces are split (tokenizer.min_count of an older version), which other toolkits cannot do"
        )
    if strange := [symbol for symbol in recipe.symbols if not symbol.startswith(">>")]:
        messages.append(f"the symbol {strange[0]} is not of the form >>xx<<")
    return messages


def model_losses(config: ModelConfig, *, modern: bool = False, **supported: object) -> list[str]:
    """Return a message for each setting of the model that a toolkit does not support. [] means that nothing
    is lost.

    modern: the toolkit supports heads of any width, other norms and feed-forward layers, and embeddings
        without a scale. Otherwise these must be as in the paper, and `norm_epsilon` at most
        `LARGEST_EPSILON`.
    supported: for further settings, the supported value, or a tuple of them.

    No toolkit supports windows, and most values of `decoder_history` and `start`.
    """
    required: dict[str, object] = {}
    widths = {  # of both stacks
        f"model.{name} is {getattr(stack, name)}": getattr(stack, name) == stack.width // stack.heads
        for stack in (config, config.of_decoder)
        for name in ("d_k", "d_v")
    }
    if not modern:
        required |= {
            "norm_kind": "layer",
            "gated": False,
            "feed_forward_bias": True,
            "scale_embeddings": True,
        }
        required["norm_epsilon"] = min(config.norm_epsilon, LARGEST_EPSILON)
    required |= {"window": 0, "decoder_history": "attention"}
    required |= {"start": ("mark", "zeros"), **supported}
    wrong = []
    for name, allowed in required.items():
        value = getattr(config, name)
        if value not in (allowed if isinstance(allowed, tuple) else (allowed,)):
            wrong.append(f"model.{name} is {value}")
    return [*(message for message, usual in widths.items() if not (usual or modern)), *wrong]


def sentencepiece_with_rules(side: Tokenizer, recipe: Recipe) -> bytes:
    """Return a side's SentencePiece model, with the normalisation of `recipe` if there is any."""
    model = side.subwords.files()["model"]
    # The SentencePiece model of an imported model has all rules already.
    if recipe.text == UNTOUCHED:
        return model
    return with_normalization(model, recipe.text)


def write_sentencepiece(tokenizers: Tokenizers, folder: Path) -> None:
    """Write `source.spm` and `target.spm`, SentencePiece models with our normalisation, into `folder`."""
    for side, name in SPMS.items():
        (folder / name).write_bytes(sentencepiece_with_rules(tokenizers.side(side), tokenizers.recipe))


def named_entries(vocabulary: Vocabulary) -> list[str]:
    """Return the entries in the order of their ids. An empty entry with id 5 becomes `<unused5>`."""
    return [entry or f"<unused{i}>" for i, entry in enumerate(vocabulary.entries)]


def package(name: str, purpose: str) -> Any:
    """Return the Python package `name`, which `purpose` needs. Raise `UserError` if it is not installed."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise UserError(f"{purpose} needs {name}: pip install {name}.") from error


def made_up(source: Tokenizer, count: int = 50) -> list[str]:
    """Return `count` random texts of 2 to 13 pieces to compare models on, the same texts each time."""
    generator = random.Random(count)
    pieces = sorted(source.numbering.pieces)
    return [source.decode(generator.choices(pieces, k=2 + i % 12)) for i in range(count)]
