"""Ragged batches: segments of any length, one after another in a flat tensor, and where each of them lies.

A segment is one sentence; nothing is padded.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

SIZES = 32
"""Powers of two that a length may be rounded up to."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Where the segments of a flat tensor lie; made once a batch, on the host.

    Its tensors are on the device of the tokens, but `lengths` always on the host, so that a kernel's launch
    can be planned without waiting for the device.
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

    sizes: Tensor
    """`sizes` of the lengths, on the host."""

    pair_sizes: Tensor | None = None
    """`sizes` of the longer side of each segment and its partner, on the host; None without partners."""

    @classmethod
    def of(cls, lengths: Sequence[int] | NDArray[np.integer], longest: int | None = None) -> Layout:
        """The layout of segments of these lengths, on the host; `longest` raises what it says of the
        longest."""
        lengths = np.asarray(lengths, dtype=np.int32)
        starts = np.zeros(len(lengths) + 1, dtype=np.int32)
        np.cumsum(lengths, out=starts[1:])
        segments = np.repeat(np.arange(len(lengths), dtype=np.int32), lengths)
        positions = np.arange(starts[-1], dtype=np.int32) - starts[segments]
        host = torch.from_numpy
        most = max(int(lengths.max(initial=0)), longest or 0)
        # A copy, since the tensor would share memory with an array that the caller may change.
        own = sizes(lengths)
        return cls(host(starts), host(segments), host(positions), host(lengths.copy()), most, own)

    def beside(self, partner: Layout) -> Layout:
        """The same layout, whose segments attend to those of `partner`."""
        return replace(self, pair_sizes=sizes(np.maximum(self.lengths.numpy(), partner.lengths.numpy())))

    def to(self, device: torch.device | str) -> Layout:
        """The same layout for tokens on `device`; does not wait for the copies where memory is pinned."""
        starts, segments, positions = (
            x.to(device, non_blocking=True) for x in (self.starts, self.segments, self.positions)
        )
        return replace(self, starts=starts, segments=segments, positions=positions)

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


def sizes(lengths: Sequence[int] | NDArray[np.integer]) -> Tensor:
    """[SIZES], int32: how many of the lengths round up to 1, 2, 4, ...; by these a kernel's launches are
    planned, once a batch."""
    bits = np.frexp(np.maximum(np.asarray(lengths, dtype=np.int64) - 1, 0))[1]
    return torch.from_numpy(np.bincount(bits[np.asarray(lengths) > 0], minlength=SIZES).astype(np.int32))


def flat(sentences: Sequence[Sequence[int]], device: torch.device) -> tuple[Tensor, Layout]:
    """The ids of all sentences one after another, int64, and their layout, both on `device`."""
    tokens = torch.tensor([token for sentence in sentences for token in sentence], dtype=torch.int64)
    return tokens.to(device), Layout.of([len(sentence) for sentence in sentences]).to(device)
