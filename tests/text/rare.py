"""Rare pieces, which tokenisers of older versions split into smaller ones (tokenizer.min_count)."""

from collections import Counter
from collections.abc import Iterable

from nmt_cli.text.subword_models.subwords import Subwords


def too_rare(subwords: Subwords, lines: Iterable[str], min_count: int) -> list[int]:
    """Return the numbers of the pieces that occur less than `min_count` times when `lines` are segmented.
    Special tokens and unused numbers are left out."""
    counts = Counter(piece for line in lines for piece in subwords.encode(line))
    pieces = (piece for piece, entry in enumerate(subwords.entries) if entry is not None)
    return [piece for piece in pieces if counts[piece] < min_count]
