"""Filler: short dummy segments that round the shape of a micro-batch up, so that few shapes occur."""

from dataclasses import dataclass

import numpy as np

from nmt_cli.data.batching.cut import Lengths
from nmt_cli.data.batching.plan import Indices

SHORT = 16
"""Most tokens of a dummy segment."""

SHARE = 48
"""Rounding units in a usual micro-batch: what is added is a small part of either side."""


@dataclass(frozen=True, slots=True)
class Rounding:
    """What the numbers of tokens and segments of a micro-batch, and its longest length, are rounded up to."""

    unit: int
    """The tokens of each side, and the segments, are a multiple of this."""

    longest: int = 32
    """The longest length that both layouts tell is this, or a larger power of two."""

    @classmethod
    def of(cls, tokens: int) -> "Rounding":
        """For micro-batches that mostly have about `tokens` on each side."""
        # A power of two, at most a `SHARE`-th of the tokens.
        return cls(unit=1 << max(tokens // SHARE, 1).bit_length() - 1)

    def dummies(self, source_lengths: Lengths, target_lengths: Lengths) -> tuple[Indices, Indices]:
        """The lengths of the dummy segments to add; each has at least one token on both sides."""
        tokens = int(source_lengths.sum()), int(target_lengths.sum())
        count = -len(source_lengths) % self.unit
        while True:
            missing = [count + -(side + count) % self.unit for side in tokens]
            # Dummies must stay short, to cost little attention: where tokens are left over, more of them are
            # taken.
            if max(missing) <= count * SHORT:
                source, target = (_spread(side, count) for side in missing)
                return source, target
            count += self.unit

    def reach(self, longest: int) -> int:
        """The longest length to tell for a micro-batch whose longest segment has `longest` tokens."""
        return max(self.longest, 1 << (longest - 1).bit_length())


def _spread(tokens: int, count: int) -> Indices:
    """`count` lengths, as equal as can be, that sum up to `tokens`."""
    return (np.arange(1, count + 1) * tokens) // max(count, 1) - (np.arange(count) * tokens) // max(count, 1)
