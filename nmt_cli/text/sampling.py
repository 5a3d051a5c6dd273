"""Random segmentation that depends only on a seed: BPE-dropout, and sampling from a unigram model."""

from collections.abc import Callable
from itertools import count

from nmt_cli.errors import UserError
from nmt_cli.text.config import SamplingConfig
from nmt_cli.text.subword_models.bpe import Bpe
from nmt_cli.text.subword_models.dropout import BpeDropout
from nmt_cli.text.subword_models.pieces import Pieces
from nmt_cli.text.subword_models.subwords import Subwords
from nmt_cli.text.subword_models.surfaces import PieceMerging
from nmt_cli.text.subword_models.unigram import UnigramSampling
from nmt_cli.text.tokenizer import Side, Tokenizer

Draw = Callable[[str, int], list[int]]
"""A function of prepared text and a 64-bit seed that returns the ids or pieces of a random segmentation."""


def sampler(tokenizer: Tokenizer, side: Side, config: SamplingConfig) -> Draw:
    """Return a function that takes prepared text and a seed, and returns the ids of a random segmentation.
    Raise `UserError` for an alpha without a unigram model, or a dropout without merges. Raise `ValueError` if
    `config` has neither for `side`."""
    draw = _subword_sampler(tokenizer, side, config)

    def line(text: str, seed: int) -> list[int]:
        seeds = count(seed)  # one for each run of text between symbols
        return tokenizer.segmented(text, lambda run: draw(run, next(seeds)))

    return line


def _subword_sampler(tokenizer: Tokenizer, side: Side, config: SamplingConfig) -> Draw:
    """Return a function that takes text without symbols and a seed, and returns randomly segmented pieces.
    Raise the errors of `sampler`."""
    settings = {"dropout": getattr(config, f"{side}_dropout"), "alpha": getattr(config, f"{side}_alpha")}
    subwords = tokenizer.subwords
    effective, described = _effective_setting(subwords)
    for name, strength in settings.items():
        if strength and name != effective:
            remedy = f"Set sampling.{side}_{effective} instead" if effective else "Leave it out"
            raise UserError(f"sampling.{side}_{name} has no effect on {described}. {remedy}.")
    if isinstance(subwords, Pieces) and effective == "alpha":
        return UnigramSampling(subwords, settings["alpha"]).encode
    if isinstance(subwords, Bpe | Pieces) and effective:
        model = subwords if isinstance(subwords, Bpe) else PieceMerging(subwords)
        return BpeDropout(model, settings["dropout"]).encode
    raise ValueError(f"no sampling is set for {side}")


def _effective_setting(subwords: Subwords) -> tuple[str | None, str]:
    """Return the setting with an effect ("alpha", "dropout" or None), and the model in words for errors."""
    if isinstance(subwords, Pieces):
        kinds = {"dropout": "BPE", "alpha": "unigram", None: "characters or words"}
        return subwords.draws_by, f"a SentencePiece model of {kinds[subwords.draws_by]}"
    if isinstance(subwords, Bpe):
        return "dropout", "merges"
    return None, "a vocabulary of characters or words"
