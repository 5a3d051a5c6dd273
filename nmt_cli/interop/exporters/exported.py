"""What all the toolkits that we write for want of a model's text: SentencePiece models and named entries."""

import json

from nmt_cli.model.config import ModelConfig
from nmt_cli.text.config import TextConfig
from nmt_cli.text.normalize import Normalizer
from nmt_cli.text.subword_models.charsmap import with_normalization
from nmt_cli.text.tokenizer import Tokenizer
from nmt_cli.text.tokenizers import DESCRIPTION, Recipe, Tokenizers
from nmt_cli.text.vocabulary import Vocabulary

UNTOUCHED = TextConfig(unicode="none", words="raw")
"""What imported models have, whose SentencePiece models bring their own rules."""

LARGEST_EPSILON = 1e-5
"""Up to here, 1e-5 or 1e-6 in its place moves log-probabilities by less than 1e-4 (by 2.5e-3 from 1e-3)."""


def text_losses(tokenizers: Tokenizers) -> list[str]:
    """What no other toolkit can do with text as the model's tokeniser does, each in words."""
    recipe = tokenizers.recipe
    if recipe.kind != "sentencepiece":
        return [f"the tokeniser is {recipe.kind}, and they take SentencePiece models"]
    found = []
    if recipe.moses("source") or recipe.moses("target"):
        found.append("text.words is moses, and they split no words")
    if any(json.loads(tokenizers.files[DESCRIPTION])["too_rare"].values()):
        found.append("tokenizer.min_count splits rare pieces, and they don't")
    if strange := [symbol for symbol in recipe.symbols if not symbol.startswith(">>")]:
        found.append(f"the symbol {strange[0]} would be text to them; they know symbols like >>xx<< only")
    return found


def model_losses(config: ModelConfig, *, any_epsilon: bool = False, **can: object) -> list[str]:
    """Return the settings that another toolkit's models cannot have, each in words.

    `can` are the values that they can have. Without `any_epsilon`, layer norm has an epsilon of their own.
    """
    usual = config.width // config.heads
    required: dict[str, object] = {"d_k": usual, "d_v": usual, "encoder_window": 0, "decoder_window": 0}
    required |= {"decoder_history": "attention", **can}
    if config.norm_epsilon > LARGEST_EPSILON and not any_epsilon:
        required["norm_epsilon"] = LARGEST_EPSILON
    values = {name: getattr(config, name) for name in required}
    return [f"model.{name} is {value}" for name, value in values.items() if value != required[name]]


def travelling(side: Tokenizer, recipe: Recipe) -> bytes:
    """A side's SentencePiece model, with our normalisation inside."""
    model = side.subwords.files()["model"]
    if recipe.text == UNTOUCHED:
        return model
    return with_normalization(model, Normalizer(recipe.text, fold_blank_mark=True))


def named_entries(vocabulary: Vocabulary) -> list[str]:
    """The entries, those that only fill up with names too."""
    return [entry or f"<unused{i}>" for i, entry in enumerate(vocabulary.entries)]
