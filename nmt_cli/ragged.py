"""Ragged batches: segments of any length, one after another in a flat tensor, and where each of them lies.

A segment is one sentence; nothing is padded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


class Plan(Protocol):
    """A plan of a kernel that moves to a device with its layout. See `attention.groups.Groups`."""

    def changed(self, change: Callable[[Tensor], Tensor]) -> Self:
        """Return the plan with `change` applied to the tensors that belong on the device."""


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

    groups: Plan | None = None
    """Those of segments that attend to themselves; None if nobody has asked for them yet."""

    pair_groups: Plan | None = None
    """Those of each segment and its partner, to which it attends; None if nobody has asked."""

    @classmethod
    def of(cls, lengths: Sequence[int] | NDArray[np.integer], longest: int | None = None) -> Layout:
        """The layout of segments of these lengths, on the host; `longest` raises what it says of the
        longest."""
        lengths = np.asarray(lengths, dtype=np.int32)
        starts = starts_of(lengths)
        segments = np.repeat(np.arange(len(lengths), dtype=np.int32), lengths)
        positions = np.arange(starts[-1], dtype=np.int32) - starts[segments]
        host = torch.from_numpy
        most = max(int(lengths.max(initial=0)), longest or 0)
        # A copy, since the tensor would share memory with an array that the caller may change.
        return cls(host(starts), host(segments), host(positions), host(lengths.copy()), most)

    def to(self, device: torch.device | str) -> Layout:
        """The same layout for tokens on `device`; does not wait for the copies where memory is pinned."""
        return self._each(lambda x: x.to(device, non_blocking=True))

    def pin_memory(self) -> Layout:
        """The same layout in pinned memory, but for what never leaves the host."""
        return self._each(Tensor.pin_memory)

    def _each(self, change: Callable[[Tensor], Tensor]) -> Layout:
        """With every tensor changed that belongs to the device."""
        return replace(
            self,
            starts=change(self.starts),
            segments=change(self.segments),
            positions=change(self.positions),
            groups=self.groups and self.groups.changed(change),
            pair_groups=self.pair_groups and self.pair_groups.changed(change),
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


def starts_of(lengths: NDArray[np.integer]) -> NDArray[np.int32]:
    """[segments + 1]: where each segment begins, and where the last one ends."""
    starts = np.zeros(len(lengths) + 1, dtype=np.int32)
    np.cumsum(lengths, out=starts[1:])
    return starts


def flat(sentences: Sequence[Sequence[int]], device: torch.device) -> tuple[Tensor, Layout]:
    """The ids of all sentences one after another, int64, and their layout; both on `device`."""
    tokens = torch.tensor([token for sentence in sentences for token in sentence], dtype=torch.int64)
    return tokens.to(device), Layout.of([len(sentence) for sentence in sentences]).to(device)
