"""Segmenting a line at random, as a pure function of a seed: BPE-dropout, and a unigram model's sampling."""

from collections.abc import Callable
from itertools import count

from nmt_cli.errors import UserError
from nmt_cli.text.config import SamplingConfig
from nmt_cli.text.subword_models.bpe import Bpe
from nmt_cli.text.subword_models.dropout import BpeDropout
from nmt_cli.text.subword_models.pieces import Pieces
from nmt_cli.text.subword_models.surfaces import PieceMerging
from nmt_cli.text.subword_models.unigram import UnigramSampling
from nmt_cli.text.tokenizer import Side, Tokenizer

Draw = Callable[[str, int], list[int]]
"""Prepared text and a seed of up to 64 bits to the ids, or the pieces, of a random segmentation."""


def sampler(tokenizer: Tokenizer, side: Side, config: SamplingConfig) -> Draw:
    """What segments `side` at random as `config` says; `UserError` if that has no effect on its model."""
    draw = _of_subwords(tokenizer, side, config)

    def line(text: str, seed: int) -> list[int]:
        seeds = count(seed)  # each stretch between symbols is drawn with another one
        return tokenizer.segmented(text, lambda run: draw(run, next(seeds)))

    return line


def _of_subwords(tokenizer: Tokenizer, side: Side, config: SamplingConfig) -> Draw:
    settings = {"dropout": getattr(config, f"{side}_dropout"), "alpha": getattr(config, f"{side}_alpha")}
    subwords = tokenizer.subwords
    works = _works(subwords)
    for name, strength in settings.items():
        if strength and name != works:
            cure = f"set sampling.{side}_{works} instead" if works else "leave it out"
            raise UserError(f"sampling.{side}_{name} has no effect on {_described(subwords)}; {cure}.")
    if isinstance(subwords, Pieces) and works == "alpha":
        return UnigramSampling(subwords, settings["alpha"]).encode
    if isinstance(subwords, Bpe | Pieces) and works:
        model = subwords if isinstance(subwords, Bpe) else PieceMerging(subwords)
        return BpeDropout(model, settings["dropout"]).encode
    raise ValueError(f"{side} is not to be sampled")


def _works(subwords: object) -> str | None:
    """Which of the settings, alpha or dropout, has an effect on this kind of model, if any."""
    if isinstance(subwords, Pieces):
        return subwords.draws_by
    return "dropout" if isinstance(subwords, Bpe) else None


def _described(subwords: object) -> str:
    if isinstance(subwords, Pieces):
        kinds = {"dropout": "BPE", "alpha": "unigram", None: "characters or words"}
        return f"a SentencePiece model of {kinds[subwords.draws_by]}"
    return "merges" if isinstance(subwords, Bpe) else "a vocabulary of characters or words"
