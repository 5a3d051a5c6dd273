"""The options of attention that all implementations share."""

from typing import NamedTuple

from torch import Tensor


class Options(NamedTuple):
    """Which keys a query sees, and the dropout of attention probabilities."""

    causal: bool = False
    """Hide the keys after the query's own position."""

    window: int = 0
    """Number of keys around a query that it sees, its own position included. 0 shows all keys."""

    drop: float = 0.0
    """Probability of dropping an attention probability."""

    seed: Tensor | None = None
    """One int64 on the device, which determines the dropout mask. Required if `drop` is not 0."""

    @property
    def back(self) -> int:
        """Number of keys in the window before a query. An even window reaches one farther back than ahead."""
        return self.window // 2

    @property
    def ahead(self) -> int:
        """Number of keys in the window after a query. 0 in causal order."""
        return 0 if self.causal else (self.window - 1) // 2


PLAIN = Options()
"""Every query sees all keys of its segment, without dropout."""
