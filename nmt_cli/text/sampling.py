"""Segmenting a line at random, as a pure function of a seed: BPE-dropout, and SentencePiece's sampling."""

from collections.abc import Callable
from itertools import count

from nmt_cli.errors import UserError
from nmt_cli.text.bpe import Bpe
from nmt_cli.text.config import SamplingConfig
from nmt_cli.text.dropout import BpeDropout
from nmt_cli.text.pieces import Pieces
from nmt_cli.text.tokenizer import Side, Tokenizer

Draw = Callable[[str, int], list[int]]
"""Prepared text and a seed of up to 64 bits to the ids, or the pieces, of a random segmentation."""

TRIED = 1000
"""Length of the text that SentencePiece is tried on."""


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
    if isinstance(subwords, Pieces):
        _refuse_unseedable(subwords)
        strength, nbest = settings[works or ""], config.nbest
        return lambda text, seed: subwords.draw(text, seed, strength, nbest)
    if isinstance(subwords, Bpe):
        return BpeDropout(subwords, settings["dropout"]).encode
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


def _refuse_unseedable(pieces: Pieces) -> None:
    """Raise `UserError` if the installed SentencePiece, an older one, heeds only the first seed it is
    given."""
    text = "".join(filter(None, pieces.entries))[:TRIED]
    strength = 0.5 if pieces.draws_by == "dropout" else 0.01  # so strong that two draws differ
    first, _, again = (pieces.draw(text, seed, strength, 0) for seed in (1, 2, 1))
    if first != again:
        raise UserError(
            "the sentencepiece that is installed can't be seeded line by line, so a run could not be "
            "repeated; install version 0.2.3 or newer."
        )
