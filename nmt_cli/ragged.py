"""Ragged batches: segments of any length, one after another in a flat tensor, and where each of them lies.

A segment is one sentence; nothing is padded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

ROWS = (64, 128)
"""Neighbouring segments share a group of no more than the first number of rows on either side; a longer
segment has a group of its own, with at most the second number of rows or with more."""


@dataclass(frozen=True, slots=True)
class Groups:
    """Segments, or pairs of them, that a kernel computes together: neighbours, as many as have few rows."""

    places: Tensor
    """[4 * segments], int32: where each group's queries begin, how many there are, and the same of its keys.

    Groups of at most `ROWS[0]` rows come first, and those of at most `ROWS[1]` next. Behind the last group
    are empty ones, so that the size follows from the number of segments. It is flat, since `torch.compile`
    would take four segments and four numbers for the same thing."""

    counts: Tensor
    """[8], int32, on the host: from where to where groups have at most `ROWS[0]` rows, from where to where at
    most `ROWS[1]`, and more; then the most rows a group has of queries, and of keys.

    More than there is does no harm: so can launches that were recorded serve any batch of the same shape."""

    @classmethod
    def of(cls, q_starts: NDArray[np.int32], k_starts: NDArray[np.int32]) -> Groups:
        """The groups of segments that begin there on either side; the last number is the end of all."""
        segments = len(q_starts) - 1
        q_ends, k_ends = (x.searchsorted(x[:-1] + ROWS[0], "right") - 1 for x in (q_starts, k_starts))
        # A segment of too many rows would not even begin a group.
        ends = np.maximum(np.minimum(q_ends, k_ends), np.arange(1, segments + 1)).tolist()
        borders = [0]
        while borders[-1] < segments:
            borders.append(ends[borders[-1]])
        starts_G2 = np.stack((q_starts[borders], k_starts[borders]), 1)
        rows_G2 = np.diff(starts_G2, axis=0)
        kinds_G = np.searchsorted(ROWS, rows_G2.max(1), "left")
        order = kinds_G.argsort(kind="stable")
        places = np.zeros((segments, 2, 2), dtype=np.int32)
        places[: len(order), :, 0], places[: len(order), :, 1] = starts_G2[order], rows_G2[order]
        sums = [0, *np.bincount(kinds_G, minlength=len(ROWS) + 1).cumsum().tolist()]
        counts = [*chain(*pairwise(sums)), *rows_G2.max(0, initial=0).tolist()]
        return cls(torch.from_numpy(places.reshape(-1)), torch.tensor(counts, dtype=torch.int32))


@dataclass(frozen=True, slots=True)
class Layout:
    """Where the segments of a flat tensor lie; made once a batch, on the host.

    Its tensors are on the device of the tokens, but `lengths` always on the host, so that nothing that looks
    at them waits for the device.
    """

    starts: Tensor
    """[segments + 1], int32: segment i is tokens starts[i] to starts[i + 1]."""

    segments: Tensor
    """[tokens], int32: the segment each token belongs to."""

    positions: Tensor
    """[tokens], int32: the position of each token in its segment, from 0."""

    lengths: Tensor
    """[segments], int32, on the host: how many tokens each segment has."""

    longest: int
    """No less than any length. May be more: where it is rounded up, fewer values occur, and `torch.compile`
    compiles less often."""

    groups: Groups | None = None
    """Those of segments that attend to themselves; None if nobody has asked for them yet."""

    pair_groups: Groups | None = None
    """Those of each segment and its partner, to which it attends; None if nobody has asked."""

    @classmethod
    def of(cls, lengths: Sequence[int] | NDArray[np.integer], longest: int | None = None) -> Layout:
        """The layout of segments of these lengths, on the host; `longest` raises what it says of the
        longest."""
        lengths = np.asarray(lengths, dtype=np.int32)
        starts = _starts(lengths)
        segments = np.repeat(np.arange(len(lengths), dtype=np.int32), lengths)
        positions = np.arange(starts[-1], dtype=np.int32) - starts[segments]
        host = torch.from_numpy
        most = max(int(lengths.max(initial=0)), longest or 0)
        # A copy, since the tensor would share memory with an array that the caller may change.
        return cls(host(starts), host(segments), host(positions), host(lengths.copy()), most)

    def grouped(self, partner: Layout | None = None) -> Layout:
        """The same layout with its groups, and those with `partner`, whose segments it attends to: so that no
        layer has to make them again."""
        starts, pairs = _starts(self.lengths.numpy()), None
        if partner:
            pairs = Groups.of(starts, _starts(partner.lengths.numpy()))
        grouped = replace(self, groups=Groups.of(starts, starts), pair_groups=pairs)
        return grouped.to(self.starts.device)

    def to(self, device: torch.device | str) -> Layout:
        """The same layout for tokens on `device`; does not wait for the copies where memory is pinned."""
        return self._each(lambda x: x.to(device, non_blocking=True))

    def pin_memory(self) -> Layout:
        """The same layout in pinned memory, but for what never leaves the host."""
        return self._each(Tensor.pin_memory)

    def _each(self, change: Callable[[Tensor], Tensor]) -> Layout:
        """With every tensor changed that belongs to the device."""
        each = (self.groups, self.pair_groups)
        groups, pairs = (some and replace(some, places=change(some.places)) for some in each)
        return replace(
            self,
            starts=change(self.starts),
            segments=change(self.segments),
            positions=change(self.positions),
            groups=groups,
            pair_groups=pairs,
        )

    def parts(self, segments: int) -> Iterator[tuple[slice, Layout]]:
        """The batch in parts of `segments` segments: where the tokens of each part lie, and its own
        layout."""
        start = 0
        for first in range(0, len(self.lengths), segments):
            some = Layout.of(self.lengths[first : first + segments].numpy())
            yield slice(start, start + len(some.segments)), some.to(self.starts.device)
            start += len(some.segments)

    def slices(self) -> Iterator[slice]:
        """Where each segment lies, one after another; for code that is not in a hurry."""
        start = 0
        for length in self.lengths.tolist():
            yield slice(start, start + length)
            start += length


def _starts(lengths: NDArray[np.integer]) -> NDArray[np.int32]:
    """[segments + 1]: where each segment begins, and where the last one ends."""
    starts = np.zeros(len(lengths) + 1, dtype=np.int32)
    np.cumsum(lengths, out=starts[1:])
    return starts


def flat(sentences: Sequence[Sequence[int]], device: torch.device) -> tuple[Tensor, Layout]:
    """The ids of all sentences one after another, int64, and their layout, grouped; both on `device`."""
    tokens = torch.tensor([token for sentence in sentences for token in sentence], dtype=torch.int64)
    return tokens.to(device), Layout.of([len(sentence) for sentence in sentences]).grouped().to(device)
