"""Random segmentation of text for subword regularisation: BPE-dropout, and sampling from a unigram model.

The result depends only on the text and a seed, so that a run can be repeated in another process.
"""

from collections.abc import Callable
from itertools import count

from nmt_cli.errors import UserError
from nmt_cli.text.config import SamplingConfig
from nmt_cli.text.subword_models.bpe import Bpe
from nmt_cli.text.subword_models.bpe_dropout import BpeDropout
from nmt_cli.text.subword_models.pieces import Pieces
from nmt_cli.text.subword_models.subwords import Subwords
from nmt_cli.text.subword_models.surfaces import PieceMerging
from nmt_cli.text.subword_models.unigram import UnigramSampling
from nmt_cli.text.tokenizer import Side, Tokenizer

Draw = Callable[[str, int], list[int]]
"""A function that takes prepared text and a 64-bit seed, and returns a random segmentation: ids of a
vocabulary, or numbers of pieces."""


def sampler(tokenizer: Tokenizer, side: Side, config: SamplingConfig) -> Draw:
    """Return a function that segments prepared text at random and returns ids. Its second argument is the
    seed.

    - `side`: the side whose settings of `config` apply.
    - `config`: must enable a dropout or an alpha for `side`, otherwise `ValueError` is raised.

    Raise `UserError` if the subword model of `tokenizer` cannot be sampled by the enabled setting: an alpha
    needs a unigram model, and a dropout needs merges.
    """
    draw = _subword_sampler(tokenizer, side, config)

    def line(text: str, seed: int) -> list[int]:
        seeds = count(seed)  # one for each run of text between symbols
        return tokenizer.segmented(text, lambda run: draw(run, next(seeds)))

    return line


def _subword_sampler(tokenizer: Tokenizer, side: Side, config: SamplingConfig) -> Draw:
    """Return a function that segments text without symbols at random and returns numbers of pieces."""
    settings = {"dropout": getattr(config, f"{side}_dropout"), "alpha": getattr(config, f"{side}_alpha")}
    subwords = tokenizer.subwords
    effective, described = _effective_setting(subwords)
    for name, strength in settings.items():
        # A setting without effect is refused, or a run would differ from what its settings say.
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
    """Return the setting that samples from a subword model, "alpha", "dropout" or None. Also return a
    description of the model for errors."""
    if isinstance(subwords, Pieces):
        kinds = {"dropout": "BPE", "alpha": "unigram", None: "characters or words"}
        return subwords.draws_by, f"a SentencePiece model of {kinds[subwords.draws_by]}"
    if isinstance(subwords, Bpe):
        return "dropout", "merges"
    return None, "a vocabulary of characters or words"
