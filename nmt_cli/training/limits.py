"""When a run ends, and what is due after a step."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nmt_cli.errors import UserError
from nmt_cli.training.clock import Clock
from nmt_cli.training.config import TrainConfig
from nmt_cli.training.position import Position

SAVE, STOP, TIME_UP = 1, 2, 4
"""What a rank may ask all of them to do; bits, as `Group.agree` takes them."""

GIVE_UP_AFTER = 10
"""Steps in a row whose loss or gradient is not finite, and which are left out, before the run ends."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Compares where a run stands with its settings."""

    config: TrainConfig
    position: Position
    clock: Clock
    stop_wanted: Callable[[], bool]

    def reached(self, next_epoch: int) -> bool:
        """Whether the run has all the steps, epochs or hours that it may have."""
        limits = self.config.training  # hours that are used up on the way end the run by TIME_UP instead
        epochs_done = bool(limits.max_epochs) and next_epoch >= limits.max_epochs
        return self.position.step >= limits.max_steps or epochs_done or self.clock.began_late

    def wishes(self, first: bool, unsaved: float) -> int:
        """What this rank asks for, `unsaved` seconds after the last checkpoint."""
        wishes = STOP if self.stop_wanted() else 0
        if first:  # clocks differ, and all ranks have to save and end at the same step
            kept = self.config.checkpoints
            wishes |= SAVE if not kept.every_steps and unsaved > 60 * kept.every_minutes else 0
            wishes |= TIME_UP if self.clock.time_is_up else 0
        return wishes

    def save_due(self, wishes: int) -> bool:
        """Whether a checkpoint is due, by steps or because a rank asked for it."""
        return bool(wishes & SAVE) or _every(self.config.checkpoints.every_steps, self.position.step)

    def line_due(self) -> bool:
        """Whether a line on the screen is due by steps."""
        return _every(self.config.training.log_every, self.position.step)

    def refuse_divergence(self, lines: Sequence[Mapping[str, Any]]) -> None:
        """End the run where too many steps in a row, up to those of `lines`, were not finite and left out."""
        for line in lines:
            # A step that was taken makes it 0 again.
            self.position.bad_in_a_row = (self.position.bad_in_a_row + 1) * line["skipped"]
        if self.position.bad_in_a_row >= GIVE_UP_AFTER:
            raise UserError(
                f"loss or gradient were not finite in {self.position.bad_in_a_row} steps in a row, up to "
                f"step {self.position.step}; lower the learning rate (schedule.factor or schedule.peak), "
                "warm up longer (schedule.warmup), set optimizer.clip_norm=1, or training.precision=fp32."
            )


def _every(steps: int, step: int) -> bool:
    return bool(steps) and step % steps == 0
