"""Aligns the words of sentence pairs by IBM model 1 in both directions, trained to agree (Liang et al. 2006).

A link also supports the links of both previous words and of both next words. This replaces the hidden Markov
model of that paper at a fraction of the cost.

Suffixes name axes: S source words and T target words of a pair, K different pairs of words.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

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


class Aligner:
    """The probabilities of translations of words in both directions, learnt from a corpus. Case does not
    count."""

    def __init__(self, pairs: Sequence[WordPair]) -> None:
        """Learn from `pairs` by expectation maximisation. Distances are ignored here, because verbs move
        far."""
        pairs = [pair for pair in pairs if max(map(len, pair)) <= LONGEST]
        # Number 0 is for words that are not in the corpus.
        words = ({word.lower(): None for pair in pairs for word in pair[side]} for side in (0, 1))
        self._numbers = [{word: number for number, word in enumerate(side, start=1)} for side in words]
        ids = [[*map(self._ids, (0, 1), pair)] for pair in pairs]
        none = np.zeros(1, np.int64)
        counts = [np.bincount(np.concatenate([none, *(one[side] for one in ids)])) for side in (0, 1)]
        self._unaligned = [UNALIGNED * count / count.sum() for count in counts]
        self._keys_K = np.unique(np.concatenate([none, *(self._keys(*one).ravel() for one in ids)]))
        rows = [np.searchsorted(self._keys_K, self._keys(*one)) for one in ids]
        self._set_tables(np.ones(len(self._keys_K)))
        for iteration in range(PLAIN + SUPPORTED):
            counts_K = np.full(len(self._keys_K), TINY)
            for one, row_ST in zip(ids, rows, strict=True):
                np.add.at(
                    counts_K, row_ST, self._agreed(one, row_ST, np.ones(row_ST.shape), iteration >= PLAIN)
                )
            self._set_tables(counts_K)

    def links(self, pair: WordPair) -> list[Link]:
        """Return the positions of words that are translations of each other, source first."""
        if max(map(len, pair)) > LONGEST:
            return []
        ids = [*map(self._ids, (0, 1), pair)]
        keys_ST = self._keys(*ids)
        row_ST = np.minimum(np.searchsorted(self._keys_K, keys_ST), len(self._keys_K) - 1)
        row_ST[self._keys_K[row_ST] != keys_ST] = 0
        places_S, places_T = ((np.arange(len(side)) + 0.5) / len(side) for side in ids)
        weight_ST = 1 / (1 + DISTANCE * np.abs(places_S[:, None] - places_T))
        linked = np.argwhere(self._agreed(ids, row_ST, weight_ST, True) >= LINKED)
        return [(source, target) for source, target in linked.tolist()]

    def _ids(self, side: int, words: Sequence[str]) -> Ids:
        return np.array([self._numbers[side].get(word.lower(), 0) for word in words], np.int64)

    def _keys(self, ids_S: Ids, ids_T: Ids) -> Ids:
        """Return a number for each pair of a source and a target word, [S, T]."""
        return ids_S[:, None] * (1 + len(self._numbers[1])) + ids_T

    def _set_tables(self, counts_K: Numbers) -> None:
        """Set p(target word | source word) and p(source word | target word), given the count of each pair of
        words."""
        owners = np.divmod(self._keys_K, 1 + len(self._numbers[1]))
        self._tables = [counts_K / np.bincount(owner_K, counts_K)[owner_K] for owner_K in owners]
        for table_K in self._tables:
            table_K[0] = 0.0  # of unknown pairs

    def _agreed(self, ids: Sequence[Ids], row_ST: Ids, weight_ST: Numbers, supported: bool) -> Numbers:
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
