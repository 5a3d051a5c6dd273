"""How long a run has taken, its resumed parts added up, and how long it will still take."""

import time

from nmt_cli.training.config import TrainingConfig
from nmt_cli.training.position import Position


class Clock:
    """Counts the seconds of a run from its construction on, with those that its position has already."""

    def __init__(self, position: Position, limits: TrainingConfig, devices: int) -> None:
        """`devices` are those that work on this part of the run."""
        self._position, self._limits, self._devices = position, limits, devices
        self._began = time.perf_counter() - position.seconds
        self.began_late = self.time_is_up
        """Whether the time was up before this process began."""

    @property
    def seconds(self) -> float:
        """Since the run began."""
        return time.perf_counter() - self._began

    @property
    def spent(self) -> tuple[float, float]:
        """The seconds, and seconds times devices; each part of the run counts with the devices it had."""
        position, seconds = self._position, self.seconds
        return seconds, position.device_seconds + (seconds - position.seconds) * self._devices

    @property
    def seconds_left(self) -> float:
        """Until the last step, by the pace of the whole run."""
        position, seconds = self._position, self.seconds
        # Only a whole epoch shows how many steps it has.
        an_epoch = (position.step - position.batch) / position.epoch if position.epoch else 0
        pace = seconds / max(position.step, 1)
        return left(self._limits, pace, position.step, an_epoch, seconds)[1]

    @property
    def share_used(self) -> float:
        """The share of training.max_hours that has passed, 0 without that limit."""
        return self.seconds / 3600 / self._limits.max_hours if self._limits.max_hours else 0.0

    @property
    def time_is_up(self) -> bool:
        """Whether the run has taken training.max_hours."""
        return self.share_used > 1

    def note(self) -> None:
        """Write what was taken up to now into the position, for the checkpoint that is about to be made."""
        self._position.seconds, self._position.device_seconds = self.spent


def left(
    limits: TrainingConfig, pace: float, step: int = 0, epoch_steps: float = 0, seconds: float = 0.0
) -> tuple[int, float]:
    """Estimate the steps and the seconds until the first of the limits, at `pace` seconds per step.

    `step` steps and `seconds` are done. `epoch_steps` is the number of steps of an epoch, 0 if unknown.
    """
    steps = limits.max_steps - step
    if limits.max_epochs and epoch_steps:
        steps = min(steps, max(0, round(limits.max_epochs * epoch_steps) - step))
    hours_left = max(0.0, 3600 * limits.max_hours - seconds)
    if limits.max_hours and steps * pace > hours_left:
        return int(hours_left / pace), hours_left
    return steps, steps * pace
