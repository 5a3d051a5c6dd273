"""How the length of a hypothesis enters its score, and how good a hypothesis may still become.

A length counts the target pieces and the end mark.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from nmt_cli.decoding.config import Rule


@dataclass(frozen=True, slots=True)
class LengthRule:
    """A score is a sum of log-probabilities divided by a penalty, which grows with the length."""

    name: Rule
    """gnmt: ((5 + n) / 6)^exponent, the paper's; power: n^exponent."""

    exponent: float

    def score(self, total: Tensor, length: Tensor) -> Tensor:
        """The score of hypotheses whose log-probabilities sum to `total`."""
        base = (5 + length) / 6 if self.name == "gnmt" else length.to(torch.float32)
        return total / base**self.exponent

    def bound(self, total: Tensor, least: Tensor, most: Tensor) -> Tensor:
        """The best score an unfinished hypothesis may still get, ending at a length from `least` to `most`.

        Log-probabilities are negative, so further tokens only lower `total`; at an unchanged total, the score
        is monotonic in the length, and the best is at one of its two ends.
        """
        return torch.maximum(self.score(total, least), self.score(total, most))
