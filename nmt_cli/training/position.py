"""The progress of a run: everything that a checkpoint keeps besides tensors."""

from dataclasses import dataclass, field


@dataclass(slots=True)
class Position:
    """Progress of a run. All parts of the loop share this object, and checkpoints store it in state.json."""

    step: int = 0
    """Number of optimiser steps taken."""

    epoch: int = 0
    batch: int = 0
    """Number of the next batch in the epoch."""

    seconds: float = 0.0
    """Duration up to the last checkpoint, with all resumed parts."""

    device_seconds: float = 0.0
    """Seconds times devices, where each resumed part counts its own number of devices."""

    bad_in_a_row: int = 0
    """Number of latest steps in a row that were left out because they were not finite."""

    scores: dict[str, float] = field(default_factory=dict)
    """The validation score of each validated step. Larger is better."""

    judged: dict[str, dict[str, float]] = field(default_factory=dict)
    """Every metric of the first validation set at each validated step."""
