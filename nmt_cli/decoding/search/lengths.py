"""Length normalisation of scores, and bounds on the score of a live hypothesis.

A length is the number of target tokens with the end mark.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from nmt_cli.decoding.config import Rule


@dataclass(frozen=True, slots=True)
class LengthRule:
    """Divides the sum of log-probabilities of a hypothesis by a penalty that grows with its length."""

    name: Rule
    """The penalty is ((5 + n) / 6)^exponent for gnmt, as in the paper, and n^exponent for power."""

    exponent: float

    def score(self, total: Tensor, length: Tensor) -> Tensor:
        """Return scores: `total`, the sum of log-probabilities, divided by the penalty at `length`."""
        base = (5 + length) / 6 if self.name == "gnmt" else length.to(torch.float32)
        return total / base**self.exponent

    def bound(self, total: Tensor, shortest: Tensor, longest: Tensor) -> Tensor:
        """Return the best score of a live hypothesis at a length from `shortest` to `longest`.

        More tokens only lower `total`. At an equal total, the score is highest at one end of the range.
        """
        return torch.maximum(self.score(total, shortest), self.score(total, longest))
