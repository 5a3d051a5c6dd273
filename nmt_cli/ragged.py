"""Ragged batches: segments of any length in one flat tensor, without padding. A segment is a sentence."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


class Plan(Protocol):
    """A plan of an attention kernel, which moves between devices together with its layout."""

    def changed(self, change: Callable[[Tensor], Tensor]) -> Self:
        """Return a plan in which `change` replaces each tensor that belongs on the device."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The positions of segments in a flat tensor, made once per batch on the host. Its tensors are on the
    device of the tokens, except `lengths`, which stays on the host."""

    starts: Tensor
    """[segments + 1], int32: segment i is tokens starts[i] to starts[i + 1]."""

    segments: Tensor
    """[tokens], int32: the segment of each token."""

    positions: Tensor
    """[tokens], int32: the position of each token in its segment, from 0."""

    lengths: Tensor
    """[segments], int32, on the host: the number of tokens of each segment."""

    mask_keys: Tensor
    """[segments], int32: the key of each segment in dropout masks. Equal keys give equal masks."""

    longest: int
    """Upper bound of the lengths. It may be rounded up, so that `torch.compile` sees fewer values."""

    groups: Plan | None = None
    """Plan for segments that attend to themselves, or None if it is not made yet. See `attention.groups`."""

    pair_groups: Plan | None = None
    """Plan for segments that attend to the segments of another layout, or None."""

    @classmethod
    def of(
        cls,
        lengths: Sequence[int] | NDArray[np.integer],
        longest: int | None = None,
        mask_keys: NDArray[np.integer] | None = None,
    ) -> Layout:
        """Return the layout of segments with these lengths, on the host and without plans.

        longest: a lower limit of the layout's `longest`.
        mask_keys: the segments' keys in dropout masks, by default their numbers.
        """
        lengths = np.asarray(lengths, dtype=np.int32)
        starts = starts_of(lengths)
        segments = np.repeat(np.arange(len(lengths), dtype=np.int32), lengths)
        positions = np.arange(starts[-1], dtype=np.int32) - starts[segments]
        host = torch.from_numpy
        longest = max(int(lengths.max(initial=0)), longest or 0)
        if mask_keys is None:
            mask_keys = np.arange(len(lengths))
        # A copy, because the caller may change the array.
        words = host(lengths.copy()), host(mask_keys.astype(np.int32))
        return cls(host(starts), host(segments), host(positions), *words, longest)

    def to(self, device: torch.device | str) -> Layout:
        """Return the layout on `device`, all but `lengths`. Copies of pinned memory may still be running."""
        return self.changed(lambda x: x.to(device, non_blocking=True))

    def changed(self, change: Callable[[Tensor], Tensor]) -> Layout:
        """Return a layout in which `change` replaces every tensor except `lengths`."""
        return replace(
            self,
            starts=change(self.starts),
            segments=change(self.segments),
            positions=change(self.positions),
            mask_keys=change(self.mask_keys),
            groups=self.groups and self.groups.changed(change),
            pair_groups=self.pair_groups and self.pair_groups.changed(change),
        )

    def parts(self, segments: int) -> Iterator[tuple[slice, Layout]]:
        """Yield the layout of each group of `segments` adjacent segments, with the slice of its tokens. The
        layouts have no plans. The last group may be smaller."""
        start = 0
        for first in range(0, len(self.lengths), segments):
            part = Layout.of(self.lengths[first : first + segments].numpy())
            yield slice(start, start + len(part.segments)), part.to(self.starts.device)
            start += len(part.segments)

    def slices(self) -> Iterator[slice]:
        """Yield the slice of the tokens of each segment, in order, by a slow Python loop."""
        start = 0
        for length in self.lengths.tolist():
            yield slice(start, start + length)
            start += length


def starts_of(lengths: NDArray[np.integer]) -> NDArray[np.int32]:
    """Return [segments + 1]: the index of each segment's first token, and the total number of tokens."""
    starts = np.zeros(len(lengths) + 1, dtype=np.int32)
    np.cumsum(lengths, out=starts[1:])
    return starts


def flat(sentences: Sequence[Sequence[int]], device: torch.device) -> tuple[Tensor, Layout]:
    """Return the ids of all sentences in one tensor [tokens], int64, and their layout, both on `device`."""
    tokens = torch.tensor([token for sentence in sentences for token in sentence], dtype=torch.int64)
    return tokens.to(device), Layout.of([len(sentence) for sentence in sentences]).to(device)
