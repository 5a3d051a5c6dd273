"""Aligns the words of sentence pairs by IBM model 1 in both directions, trained to agree (Liang et al. 2006).

A link also supports the links of both previous words and of both next words. This replaces the hidden Markov
model of that paper at a fraction of the cost.

Suffixes name axes: S source words and T target words of a pair, K different pairs of words.
"""

from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from nmt_cli.runtime.kernels.loading import compiled_kernels
from nmt_cli.runtime.threads import in_threads
from nmt_cli.text.linked_words import Link

Ids = NDArray[np.int64]
Numbers = NDArray[np.float64]
WordPair = Sequence[Sequence[str]]
"""The words of the source, and those of the target. Each side has at least one."""

PLAIN, SUPPORTED = 6, 4
"""The numbers of iterations without and with support by neighbours."""

BASE = 0.5
"""The weight of a link without support. The probabilities of the link before it and the link after it are
added."""

UNALIGNED = 0.05
"""The prior probability that a word has no partner."""

DISTANCE = 10.0
"""A link between words at the relative distance d has the weight 1 / (1 + d * `DISTANCE`). This decides
between repeated words."""

LINKED = 0.25
"""A link needs this product of its probabilities in both directions."""

LONGEST = 256
"""The maximum number of words of a side. Longer pairs get no links."""

TINY = 1e-12

COUNTED = float(1 << 40)
"""Probabilities are added up as integers, times this number. Such sums do not depend on the order."""

NO_COUNTS, NO_NUMBERS = np.empty(0, np.int64), np.empty(0)

KERNELS = "data.preprocessing.cpu_alignments"

CELLS_AT_ONCE = 4_000_000
"""Links for which memory is needed at a time, to find the different pairs of words."""


@dataclass(frozen=True, slots=True)
class _Words:
    """The words of many pairs as numbers."""

    places: Ids
    """For each pair the positions of its first source word, first target word and first link, and at last the
    ends. A link is a source and a target word of the pair."""

    sides: Sequence[Ids]
    """The words of all sources, and of all targets."""

    def __len__(self) -> int:
        return len(self.places) - 1

    def pair(self, number: int) -> list[Ids]:
        """Return the source and the target words of a pair."""
        return [side[slice(*self.places[number : number + 2, i])] for i, side in enumerate(self.sides)]


class Aligner:
    """The probabilities of translations of words in both directions, learnt from a corpus. Case does not
    count."""

    def __init__(self, pairs: Iterable[WordPair]) -> None:
        """Learn from `pairs` by expectation maximisation. Distances are ignored here, because verbs move
        far."""
        # Number 0 is for words that are not in the corpus.
        self._numbers: list[dict[str, int]] = [{}, {}]
        corpus = self._words((pair for pair in pairs if max(map(len, pair)) <= LONGEST), new=True)
        counts = [
            np.bincount(side, minlength=1 + len(numbers))
            for side, numbers in zip(corpus.sides, self._numbers, strict=True)
        ]
        self._unaligned = [UNALIGNED * count / max(count.sum(), 1) for count in counts]
        self._keys_K = self._different(corpus)
        self._starts = np.searchsorted(self._keys_K, np.arange(len(counts[0]) + 1) * len(counts[1]))
        rows = self._rows(corpus)
        self._set_tables(np.ones(len(self._keys_K)))
        for iteration in range(PLAIN + SUPPORTED):
            counts_K = np.zeros(len(self._keys_K), np.int64)
            self._align(corpus, rows, 0.0, iteration >= PLAIN, counts_K)
            self._set_tables(counts_K / COUNTED + TINY)

    def links(self, pairs: Sequence[WordPair]) -> Iterator[list[Link]]:
        """Yield for each of `pairs` the positions of words that translate each other, source first."""
        words = self._words(pair if max(map(len, pair)) <= LONGEST else ((), ()) for pair in pairs)
        agreed = np.empty(words.places[-1, 2])
        self._align(words, self._rows(words), DISTANCE, True, agreed=agreed)
        linked, targets = np.flatnonzero(agreed >= LINKED), np.diff(words.places[:, 1])
        firsts = words.places[:, 2]
        owner = np.searchsorted(firsts, linked, "right") - 1
        both = np.divmod(linked - firsts[owner], targets[owner])
        found = [*zip(*(side.tolist() for side in both), strict=True)]
        ends = np.searchsorted(linked, firsts).tolist()
        for first, end in pairwise(ends):
            yield found[first:end]

    def _words(self, pairs: Iterable[WordPair], new: bool = False) -> _Words:
        """Return the words of `pairs` as numbers. With `new`, words without a number get one."""
        sides, sizes = (array("q"), array("q")), array("q")
        for pair in pairs:
            for words, numbers, side in zip(pair, self._numbers, sides, strict=True):
                if new:
                    side.extend([numbers.setdefault(word.lower(), len(numbers) + 1) for word in words])
                else:
                    side.extend([numbers.get(word.lower(), 0) for word in words])
                sizes.append(len(words))
        sizes_of_pairs = np.array(sizes).reshape(-1, 2)
        places = np.zeros((len(sizes_of_pairs) + 1, 3), np.int64)
        places[1:] = np.column_stack([sizes_of_pairs, sizes_of_pairs.prod(1)]).cumsum(0)
        return _Words(places, [np.array(side) for side in sides])

    def _keys(self, ids_S: Ids, ids_T: Ids) -> Ids:
        """Return a number for each pair of a source and a target word, [S, T]."""
        return ids_S[:, None] * (1 + len(self._numbers[1])) + ids_T

    def _different(self, words: _Words) -> Ids:
        """Return the different keys of all links, ascending, and 0."""
        found, waiting, size = np.zeros(1, np.int64), list[Ids](), 0
        for number in range(len(words)):
            waiting.append(self._keys(*words.pair(number)).ravel())
            size += len(waiting[-1])
            # The longer the result, the rarer it is merged.
            if size > max(CELLS_AT_ONCE, len(found)) or number + 1 == len(words):
                found, waiting, size = np.unique(np.concatenate([found, *waiting])), [], 0
        return found

    def _set_tables(self, counts_K: Numbers) -> None:
        """Set p(target word | source word) and p(source word | target word), given the count of each pair of
        words."""
        owners = np.divmod(self._keys_K, 1 + len(self._numbers[1]))
        self._tables = np.stack([counts_K / np.bincount(owner_K, counts_K)[owner_K] for owner_K in owners])
        self._tables[:, 0] = 0.0  # of unknown pairs

    def _rows(self, words: _Words) -> NDArray[np.int32]:
        """Return the row of each link in the tables, or 0 for an unknown pair of words."""
        rows = np.empty(words.places[-1, 2], np.int32)
        if kernels := compiled_kernels(KERNELS):
            known = self._starts, self._keys_K, 1 + len(self._numbers[1]), rows
            in_threads(
                lambda first, end: kernels.find_rows(first, end, words.places, *words.sides, *known),
                len(words),
            )
            return rows
        for number in range(len(words)):
            keys = self._keys(*words.pair(number)).ravel()
            own = np.minimum(np.searchsorted(self._keys_K, keys), len(self._keys_K) - 1)
            own[self._keys_K[own] != keys] = 0
            rows[slice(*words.places[number : number + 2, 2])] = own
        return rows

    def _align(
        self,
        words: _Words,
        rows: NDArray[np.int32],
        distance: float,
        supported: bool,
        counts_K: Ids = NO_COUNTS,
        agreed: Numbers = NO_NUMBERS,
    ) -> None:
        """Compute the probability of each link.

        - `rows`: the rows of the links in the tables.
        - `distance`: the weight of distances, see `DISTANCE`.
        - `supported`: whether links next to a link support it.
        - `counts_K`: if not empty, the probabilities are added to it by pair of words, times `COUNTED`.
        - `agreed`: if not empty, the probabilities are written to it.
        """
        if kernels := compiled_kernels(KERNELS):
            given = words.places, *words.sides, rows, self._tables, *self._unaligned, distance, supported
            in_threads(
                lambda first, end: kernels.align(first, end, *given, counts_K, agreed),
                len(words),
            )
            return
        for number in range(len(words)):
            ids, cells = words.pair(number), slice(*words.places[number : number + 2, 2])
            places_S, places_T = ((np.arange(len(side)) + 0.5) / len(side) for side in ids)
            weight_ST = 1 / (1 + distance * np.abs(places_S[:, None] - places_T))
            row_ST = rows[cells].reshape(weight_ST.shape)
            agreed_ST = self._agreed(ids, row_ST, weight_ST, supported)
            if len(counts_K):
                np.add.at(counts_K, row_ST, (agreed_ST * COUNTED + 0.5).astype(np.int64))
            else:
                agreed[cells] = agreed_ST.ravel()

    def _agreed(
        self, ids: Sequence[Ids], row_ST: NDArray[np.int32], weight_ST: Numbers, supported: bool
    ) -> Numbers:
        """Return for each link the product of its probabilities in both directions, [S, T].

        - `ids`: the numbers of the source words and of the target words.
        - `row_ST`: the row of each pair of words in the tables.
        - `weight_ST`: the prior weight of each link.
        - `supported`: whether links next to a link support it.
        """
        agreed_ST = np.ones(row_ST.shape)
        # First, each target word chooses among the source words, along axis 0. Then the other way round.
        for axis, table_K in enumerate(self._tables):
            share_ST = (1 - UNALIGNED) * weight_ST / weight_ST.sum(axis, keepdims=True)
            score_ST = share_ST * table_K[row_ST]
            unaligned = np.expand_dims(self._unaligned[1 - axis][ids[1 - axis]], axis)
            agreed_ST *= score_ST / (score_ST.sum(axis, keepdims=True) + unaligned + TINY)
        if not supported:
            return agreed_ST
        near = np.pad(agreed_ST, 1)
        # The first result tells which neighbours are likely. The second one uses them as support.
        return self._agreed(ids, row_ST, weight_ST * (BASE + near[:-2, :-2] + near[2:, 2:]), False)
