"""Decides when a run ends, and what is due after a step."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nmt_cli.errors import UserError
from nmt_cli.training.clock import Clock
from nmt_cli.training.config import TrainConfig
from nmt_cli.training.position import Position

SAVE, STOP, TIME_UP = 1, 2, 4
"""Requests of a rank to all ranks, as bits for `Group.agree`."""

GIVE_UP_AFTER = 10
"""A run ends after this many steps in a row that were left out because loss or gradient were not finite."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Decides when a run ends or saves. `stop_wanted` returns whether the user asked this process to stop."""

    config: TrainConfig
    position: Position
    clock: Clock
    stop_wanted: Callable[[], bool]

    def reached(self, next_epoch: int) -> bool:
        """Return whether all steps or epochs are done, or the hours were used up before this process began.
        `next_epoch` is the epoch of the next batch, from 0."""
        limits = self.config.training
        epochs_done = bool(limits.max_epochs) and next_epoch >= limits.max_epochs
        return self.position.step >= limits.max_steps or epochs_done or self.clock.began_late

    def requests(self, first: bool, unsaved: float) -> int:
        """Return this rank's requests as a sum of bits: `STOP` if the user wants to stop. If this rank is
        `first`, add `TIME_UP` after training.max_hours. If saving by minutes is on and due, the first rank
        also adds `SAVE`. `unsaved` is the seconds since the last save."""
        requests = STOP if self.stop_wanted() else 0
        if first:
            config = self.config.checkpoints
            requests |= SAVE if not config.every_steps and unsaved > 60 * config.every_minutes else 0
            requests |= TIME_UP if self.clock.time_is_up else 0
        return requests

    def save_due(self, requests: int) -> bool:
        """Return whether `requests` has `SAVE`, or the step is a multiple of checkpoints.every_steps."""
        every_steps = self.config.checkpoints.every_steps
        return bool(requests & SAVE) or (every_steps > 0 and self.position.step % every_steps == 0)

    def line_due(self) -> bool:
        """Return whether the number of this step is a multiple of training.log_every."""
        return self.position.step % self.config.training.log_every == 0

    def refuse_divergence(self, lines: Sequence[Mapping[str, Any]]) -> None:
        """Count in the position how many of the latest steps in a row were left out, from log `lines`. Raise
        `UserError` if the count is at least `GIVE_UP_AFTER`."""
        for line in lines:
            # A step that was taken resets the count to 0.
            self.position.bad_in_a_row = (self.position.bad_in_a_row + 1) * line["skipped"]
        if self.position.bad_in_a_row >= GIVE_UP_AFTER:
            raise UserError(
                f"loss or gradient were not finite in {self.position.bad_in_a_row} steps in a row, up to "
                f"step {self.position.step}. Lower the learning rate (schedule.factor or schedule.peak), "
                "warm up longer (schedule.warmup), set optimizer.clip_norm=1, or training.precision=fp32."
            )
