"""The options of attention that all implementations share."""

from typing import NamedTuple

import torch
from torch import Tensor


class Options(NamedTuple):
    """Which keys a query sees, the dropout of attention probabilities, and a bias of scores."""

    causal: bool = False
    """Hide the keys after the query's own position."""

    window: int = 0
    """Number of keys around a query that it sees, its own position included. 0 shows all keys."""

    drop: float = 0.0
    """Probability of dropping an attention probability."""

    seed: Tensor | None = None
    """One int64 on the device, which determines the dropout mask. Required if `drop` is not 0."""

    bias_HD: Tensor | None = None
    """Numbers to add to scores, for each head and the distances 1 - L to L - 1 from a query to a key. L is at
    least the length of the longest segment. None is 0."""

    @property
    def back(self) -> int:
        """Number of keys in the window before a query. An even window reaches one farther back than ahead."""
        return self.window // 2

    @property
    def ahead(self) -> int:
        """Number of keys in the window after a query. 0 in causal order."""
        return 0 if self.causal else (self.window - 1) // 2

    def bias(self, queries: int, keys: int) -> Tensor | None:
        """Return [H, queries, keys]: the numbers to add to the scores of a segment, or None."""
        if self.bias_HD is None:
            return None
        rows = torch.arange(queries, device=self.bias_HD.device)[:, None]
        distances_TS = torch.arange(keys, device=self.bias_HD.device) - rows
        return self.bias_HD[:, distances_TS + self.bias_HD.shape[1] // 2]


PLAIN = Options()
"""Every query sees all keys of its segment, without dropout."""
