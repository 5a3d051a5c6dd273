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
    """The multiples to which the shape of a micro-batch is rounded up."""

    unit: int
    """The tokens of each side and the number of segments are multiples of this."""

    @classmethod
    def of(cls, tokens: int) -> "Rounding":
        """Return the rounding for micro-batches of about `tokens` tokens per side."""
        # The largest power of two that is at most 1 / `SHARE` of the tokens.
        return cls(unit=1 << max(tokens // SHARE, 1).bit_length() - 1)

    def dummies(self, source_lengths: Lengths, target_lengths: Lengths) -> tuple[Indices, Indices]:
        """Return the lengths of the dummy segments of the source and of the target. Both sides get the same
        number of dummies, each of 1 to `SHORT` tokens. With them, the segments and tokens of both sides are
        multiples of `unit`.
        """
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
        """Return `longest`, the tokens of the longest segment, rounded up to a power of two. Both layouts
        report this length as their longest.
        """
        return max(LEAST_LONGEST, 1 << (longest - 1).bit_length())


def _spread(tokens: int, count: int) -> Indices:
    """Return `count` lengths that differ by at most 1 and add up to `tokens`."""
    return np.diff(np.arange(count + 1) * tokens // max(count, 1))
