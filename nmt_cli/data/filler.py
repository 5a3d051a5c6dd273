"""Filler: short dummy segments that round the shape of a micro-batch up, so that few shapes occur."""

from dataclasses import dataclass

import numpy as np

from nmt_cli.data.cut import Lengths
from nmt_cli.data.plan import Indices

SHORT = 16
"""Most tokens of a dummy segment."""

SHARE = 48
"""A micro-batch is rounded up by about one part in so many, on either side."""


@dataclass(frozen=True, slots=True)
class Rounding:
    """What shapes are rounded up to."""

    unit: int
    """Tokens of each side, and segments, are multiples of it."""

    longest: int = 32
    """The longest length, one for both sides, is this, or a larger power of two."""

    @classmethod
    def of(cls, tokens: int) -> "Rounding":
        """For micro-batches that mostly have about `tokens` on each side."""
        return cls(unit=1 << max(tokens // SHARE, 1).bit_length() - 1)

    def dummies(self, source_lengths: Lengths, target_lengths: Lengths) -> tuple[Indices, Indices]:
        """The lengths of the dummy segments to add; each has a token or more on both sides."""
        tokens = int(source_lengths.sum()), int(target_lengths.sum())
        count = -len(source_lengths) % self.unit
        while True:
            missing = [count + -(side + count) % self.unit for side in tokens]
            if max(missing) <= count * SHORT:
                source, target = (_spread(side, count) for side in missing)
                return source, target
            count += self.unit

    def reach(self, longest: int) -> int:
        """The length to plan for where the longest segment has `longest` tokens."""
        return max(self.longest, 1 << (longest - 1).bit_length())


def _spread(tokens: int, count: int) -> Indices:
    """`count` lengths, as equal as can be, that sum up to `tokens`."""
    return (np.arange(1, count + 1) * tokens) // max(count, 1) - (np.arange(count) * tokens) // max(count, 1)
