"""The arrays of a batch of sentences, which grow when they need more room.

A sentence has a place, the first index of most arrays. The compiled functions read and write the arrays.
`beams.State` explains them.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nmt_cli.decoding.search.hypotheses import Hypothesis, Sentence
from nmt_cli.engine.packing import Packed

LIVE, DONE, BROKEN, EMPTY = 1, 2, -1, 0
"""Values of `live`. A sentence is broken if a probability was not a number."""

FREE, ROWS, FINISHED = 0, 1, 2
"""Indices of `counts`: free nodes, rows of the last step, and sentences that became done in the last call."""

BY_TOKEN = "tokens", "token_totals", "ended_tokens", "ended_token_totals", "paths"
"""Arrays whose last axis is target tokens."""

BY_NODE = "uses", "free"
"""Arrays with an element for each node."""

MORE_TOKENS = 32
"""Target tokens by which arrays grow at least."""


class State:
    """Hypotheses, keys and values of a batch."""

    def __init__(self, packed: Packed, slots: int, results: int) -> None:
        """Begin without places. A sentence has `slots` live and at most `results` finished hypotheses."""
        self._kernels = packed.kernels
        whole, exact = np.int64, np.float32
        self._arrays: dict[str, NDArray[Any]] = {
            **{
                name: np.empty(0, whole)
                for name in ("live", "ages", "caps", "pieces", "certain", "without", "ended", "listed")
            },
            "shortlists": np.empty((0, 0), np.int32),
            "prefixes": np.empty((0, 0), whole),
            "totals": np.empty((0, slots), exact),
            "tokens": np.empty((0, slots, 0), whole),
            "token_totals": np.empty((0, slots, 0), exact),
            "ended_scores": np.empty((0, results), exact),
            "ended_lengths": np.empty((0, results), whole),
            "ended_tokens": np.empty((0, results, 0), whole),
            "ended_token_totals": np.empty((0, results, 0), exact),
            "paths": np.empty((0, slots, 0), np.int32),
            "uses": np.empty(0, np.int32),
            "free": np.empty(0, np.int32),
            "counts": np.zeros(3, whole),
        }
        layers = packed.model.config.decoder_layers
        self._own = np.empty((layers, 0, packed.cached), exact)
        self._source = np.empty((0, layers, 0, packed.source), exact)
        self._lengths = np.empty(0, whole)

    def __getitem__(self, name: str) -> NDArray[Any]:
        return self._arrays[name]

    @property
    def of_kernels(self) -> Any:
        """The arrays as `beams.State`."""
        return self._kernels.State(
            **self._arrays, own_LPC=self._own, source_BLSC=self._source, lengths_B=self._lengths
        )

    @property
    def live(self) -> NDArray[np.bool_]:
        """True for the places of sentences that are not done."""
        live: NDArray[np.bool_] = self._arrays["live"] == LIVE
        return live

    def make_room(
        self, places: int, tokens: int = 0, source: int = 0, prefix: int = 0, listed: int = 0
    ) -> None:
        """Extend the arrays if they are smaller than this. An array never shrinks.

        places: sentences at a time.
        tokens: target tokens of a hypothesis.
        source: source tokens of a sentence, with the end token.
        prefix: tokens that a translation has to begin with.
        listed: tokens of a shortlist.
        """
        now = self["tokens"].shape[2]
        # Growing copies the arrays, so they grow by many tokens at a time.
        tokens = max(tokens, now + MORE_TOKENS) if tokens > now else now
        for name, array in self._arrays.items():
            if name in BY_NODE or name == "counts":
                continue
            last = {"prefixes": prefix, "shortlists": listed, **dict.fromkeys(BY_TOKEN, tokens)}.get(name, 0)
            shape = [max(places, len(array)), *array.shape[1:]]
            if last:
                shape[-1] = max(last, shape[-1])
            self._arrays[name] = _grown(array, shape)
            if name == "prefixes":  # 0 is a token
                self._arrays[name][:, array.shape[1] :] = -1
        more, (_, layers, longest, columns) = max(places, len(self._source)), self._source.shape
        self._source = _grown(self._source, [more, layers, max(source, longest), columns])
        self._lengths = _grown(self._lengths, [more])

    def make_nodes(self, needed: int) -> None:
        """Add nodes until `needed` are free."""
        free, before = int(self["counts"][FREE]), len(self["uses"])
        if needed <= free:
            return
        # By half at least, so that all copies together take time in proportion to the last size.
        after = before + max(needed - free, before // 2)
        self._own = _grown(self._own, [len(self._own), after, self._own.shape[2]])
        for name in BY_NODE:
            self._arrays[name] = _grown(self[name], [after])
        self["free"][free : free + after - before] = np.arange(before, after)
        self["counts"][FREE] = free + after - before

    def begin(self, place: int, sentence: Sentence, cap: int, length: int, listed: NDArray[np.int32]) -> None:
        """Put a sentence of `length` source tokens, with end, into a place. It gets one empty hypothesis.

        listed: the only tokens that its translation may have, ascending. If empty, it may have all.
        """
        values = {"live": LIVE, "ages": 0, "caps": cap, "pieces": len(sentence.tokens), "ended": 0}
        values["without"] = int(sentence.placeholders is not None)
        for name, value in {**values, "certain": sentence.certain, "ended_scores": -np.inf}.items():
            self[name][place] = value
        self["listed"][place] = len(listed)
        self["shortlists"][place, : len(listed)] = listed
        self["prefixes"][place] = -1
        self["prefixes"][place, : len(sentence.prefix)] = sentence.prefix
        self["totals"][place] = -np.inf
        self["totals"][place, 0] = 0
        self._lengths[place] = length

    def finished(self, place: int) -> list[Hypothesis]:
        """Return the finished hypotheses of a sentence, best first, and empty its place. There are none if a
        probability was not a number."""
        hypotheses = []
        scores = self["ended_scores"][place] if self["live"][place] == DONE else np.empty(0)
        for k, score in enumerate(scores.tolist()):
            if score > -np.inf:
                length = int(self["ended_lengths"][place, k])
                sums = [0.0, *self["ended_token_totals"][place, k, :length].tolist()]
                # The compiled functions store the sum up to each token.
                token_scores = [after - before for before, after in pairwise(sums)]
                tokens = self["ended_tokens"][place, k, : length - 1].tolist()
                hypotheses.append(Hypothesis(tokens, score, token_scores))
        self["live"][place] = EMPTY
        return hypotheses

    def drop(self, place: int) -> None:
        """Empty the place of a sentence that is not done, and free the nodes of its hypotheses."""
        counts, age = self["counts"], int(self["ages"][place])
        for slot in np.flatnonzero(self["totals"][place] > -np.inf):
            nodes = self["paths"][place, slot, :age]
            self["uses"][nodes] -= 1  # a path has no node twice
            unused = nodes[self["uses"][nodes] == 0]
            self["free"][counts[FREE] : counts[FREE] + len(unused)] = unused
            counts[FREE] += len(unused)
        self["live"][place] = EMPTY


def _grown(array: NDArray[Any], shape: Sequence[int]) -> NDArray[Any]:
    """Return an array of `shape`, which is at least as large as `array`, with its values at the same indices.
    New integers are 0, and other new values are arbitrary."""
    if tuple(shape) == array.shape:
        return array
    grown = np.zeros(shape, array.dtype) if array.dtype.kind == "i" else np.empty(shape, array.dtype)
    grown[tuple(slice(0, size) for size in array.shape)] = array
    return grown
