"""How far a run has come: what a checkpoint keeps besides tensors."""

from dataclasses import dataclass, field


@dataclass(slots=True)
class Position:
    """Where a run stands. Every part of the loop shares one, and a checkpoint's state.json has it."""

    step: int = 0
    """Optimiser steps that were taken."""

    epoch: int = 0
    batch: int = 0
    """The next batch of the epoch."""

    seconds: float = 0.0
    """Spent up to the last checkpoint, all resumed parts added up."""

    device_seconds: float = 0.0
    """The same, each part times the devices it had."""

    bad_in_a_row: int = 0
    """Steps that were left out as they were not finite, up to here without one that was taken."""

    scores: dict[str, float] = field(default_factory=dict)
    """The validation score of each step that was judged; larger is better."""

    judged: dict[str, dict[str, float]] = field(default_factory=dict)
    """Every metric of the first validation set at each of these steps."""

    log_bytes: int = 0
    log_sha256: str = ""
    """How long `log.jsonl` was by then, and its hash."""
