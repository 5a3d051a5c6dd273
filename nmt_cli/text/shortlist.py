"""Shortlists: the few target tokens that a translation of a given sentence may consist of.

Each source token has a list of target tokens that may translate it. A sentence may use the lists of all its
tokens and of its end token. So the list of the end token has the tokens that every sentence may use. The
shortlist of a sentence does not depend on other sentences that are translated at the same time.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nmt_cli.text.vocabulary import Vocabulary

Ids = NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Shortlist:
    """The lists of all source tokens."""

    offsets: NDArray[np.int64]
    """The list of token i is `targets[offsets[i]:offsets[i + 1]]`."""

    targets: Ids

    def of(self, tokens: Iterable[int], others: Iterable[int], size: int) -> Ids:
        """Return the target tokens for a sentence, ascending.

        - `tokens`: the source tokens, with the end token.
        - `others`: target tokens that it may use, too.
        - `size`: the number of entries of the target vocabulary.
        """
        chosen = np.zeros(size, np.bool_)
        for token in {*tokens}:
            chosen[self.list_of(token)] = True
        chosen[[*others]] = True
        return np.flatnonzero(chosen).astype(np.int32)

    def list_of(self, token: int) -> Ids:
        """Return the list of a source token."""
        return self.targets[self.offsets[token] : self.offsets[token + 1]]


def shortlist_of(lists: Iterable[Iterable[int]]) -> Shortlist:
    """Return the shortlist with a list for each source token."""
    ascending = [sorted({*own}) for own in lists]
    offsets = np.cumsum([0, *map(len, ascending)], dtype=np.int64)
    return Shortlist(offsets, np.array([token for own in ascending for token in own], np.int32))


def with_copies(
    lists: Iterable[Iterable[int]], source: Vocabulary, target: Vocabulary
) -> Iterator[Iterable[int]]:
    """Add to the list of each source token the target token with the same text, so that names and numbers can
    be copied."""
    same = {text: token for token, text in enumerate(target.entries) if text}
    for own, text in zip(lists, source.entries, strict=True):
        yield [*own, same[text]] if text in same else own
