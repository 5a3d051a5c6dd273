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

    - `side`: the side whose strength in `config` applies. It is not 0.

    Raise `UserError` if the subword model of `tokenizer` cannot be sampled, or not with this strength.
    """
    draw = _subword_sampler(tokenizer.subwords, f"sampling.{side}", getattr(config, side))

    def line(text: str, seed: int) -> list[int]:
        seeds = count(seed)  # one for each run of text between symbols
        return tokenizer.segmented(text, lambda run: draw(run, next(seeds)))

    return line


def _subword_sampler(subwords: Subwords, setting: str, strength: float) -> Draw:
    """Return a function that segments text without symbols at random and returns numbers of pieces. Errors
    name the `setting` of the strength."""
    if isinstance(subwords, Pieces) and subwords.draws_by == "alpha":
        return UnigramSampling(subwords, strength).encode
    if isinstance(subwords, Bpe):
        merging: Bpe | PieceMerging = subwords
    elif isinstance(subwords, Pieces) and subwords.draws_by:
        merging = PieceMerging(subwords)
    else:
        # A setting without effect is refused, or a run would differ from what its settings say.
        raise UserError(f"{setting} has no effect on a vocabulary of characters or words. Leave it out.")
    if strength >= 1:
        raise UserError(
            f"{setting} is {strength:g}, but it must be less than 1, usually 0.1: the dataset's subwords are "
            "merges, and each is omitted with this probability."
        )
    return BpeDropout(merging, strength).encode
