"""Measures the duration of a run over all its parts, and estimates the time that is left."""

import time

from nmt_cli.training.config import TrainingConfig
from nmt_cli.training.position import Position


class Clock:
    """A clock of the whole run. In a resumed run, it continues from the seconds in the position."""

    def __init__(self, position: Position, limits: TrainingConfig, devices: int) -> None:
        """Start at the seconds in `position`. `devices` is the current number of devices over all ranks."""
        self._position, self._limits, self._devices = position, limits, devices
        self._start = time.perf_counter() - position.seconds
        self.began_late = self.time_is_up
        """Whether the time was up when this process started."""

    @property
    def seconds(self) -> float:
        """Duration of the run so far in seconds, with its resumed parts."""
        return time.perf_counter() - self._start

    @property
    def spent(self) -> tuple[float, float]:
        """Seconds and device seconds so far. Each resumed part counts its own number of devices."""
        position, seconds = self._position, self.seconds
        return seconds, position.device_seconds + (seconds - position.seconds) * self._devices

    @property
    def seconds_left(self) -> float:
        """Estimated seconds to max_steps or an earlier limit, at mean pace. Ignore max_epochs in epoch 0."""
        position, seconds = self._position, self.seconds
        # The number of steps in an epoch is not known before one has ended.
        epoch_steps = (position.step - position.batch) / position.epoch if position.epoch else 0
        pace = seconds / max(position.step, 1)
        return left(self._limits, pace, position.step, epoch_steps, seconds)[1]

    @property
    def share_used(self) -> float:
        """Fraction of training.max_hours that has passed, over 1 after the limit. 0 if there is no limit."""
        return self.seconds / 3600 / self._limits.max_hours if self._limits.max_hours else 0.0

    @property
    def time_is_up(self) -> bool:
        """True if the run is longer than training.max_hours. Always false without that limit."""
        return self.share_used > 1

    def note(self) -> None:
        """Store the seconds and device seconds in the position. Call this before each checkpoint."""
        self._position.seconds, self._position.device_seconds = self.spent


def left(
    limits: TrainingConfig, pace: float, step: int = 0, epoch_steps: float = 0, seconds: float = 0.0
) -> tuple[int, float]:
    """Return the estimated steps and seconds left until the first limit: steps, epochs or hours. `pace` is in
    seconds per step. `step` and `seconds` have passed already. If `epoch_steps` is 0, ignore epochs."""
    steps = limits.max_steps - step
    if limits.max_epochs and epoch_steps:
        steps = min(steps, max(0, round(limits.max_epochs * epoch_steps) - step))
    time_left = max(0.0, 3600 * limits.max_hours - seconds)
    if limits.max_hours and steps * pace > time_left:
        return int(time_left / pace), time_left
    return steps, steps * pace
