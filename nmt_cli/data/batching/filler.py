"""Filler: short dummy segments that round up the shape of a micro-batch, so that few shapes occur."""

from dataclasses import dataclass

import numpy as np

from nmt_cli.data.batching.cut import Lengths
from nmt_cli.data.batching.plan import Indices

SHORT = 16
"""Maximum tokens of a dummy segment."""

SHARE = 48
"""Minimum number of rounding units in a micro-batch, so that filler is a small part of either side."""

LEAST_LONGEST = 32
"""Minimum length that layouts report as their longest."""


@dataclass(frozen=True, slots=True)
class Rounding:
    """How to round up the shape of a micro-batch with dummy segments."""

    unit: int
    """The number of tokens of each side and the number of segments become multiples of `unit`."""

    @classmethod
    def of(cls, tokens: int) -> "Rounding":
        """Return the rounding whose unit is the largest power of two up to `tokens` / `SHARE`, or 1."""
        # The largest power of two that is at most 1 / `SHARE` of the tokens.
        return cls(unit=1 << max(tokens // SHARE, 1).bit_length() - 1)

    def dummies(self, source_lengths: Lengths, target_lengths: Lengths) -> tuple[Indices, Indices]:
        """Return the lengths of dummy segments for the source and the target, equally many. Each has 1 to
        `SHORT` tokens. With dummies, both sides have multiples of `unit` segments and tokens."""
        tokens = int(source_lengths.sum()), int(target_lengths.sum())
        count = -len(source_lengths) % self.unit
        while True:
            missing = [count + -(side + count) % self.unit for side in tokens]
            # Short dummies keep attention cheap, so more tokens need more dummies.
            if max(missing) <= count * SHORT:
                source, target = (_spread(side, count) for side in missing)
                return source, target
            count += self.unit

    def reach(self, longest: int) -> int:
        """Return the maximum length that layouts report. It is `longest`, rounded up to a power of two, and
        at least `LEAST_LONGEST`."""
        return max(LEAST_LONGEST, 1 << (longest - 1).bit_length())


def _spread(tokens: int, count: int) -> Indices:
    """Return `count` lengths that add up to `tokens` and differ by at most 1. Return none for `count` 0."""
    return np.diff(np.arange(count + 1) * tokens // max(count, 1))
