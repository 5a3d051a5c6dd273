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
        self.began_late = self._over(position.seconds)
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
        position, limits, seconds = self._position, self._limits, self.seconds
        steps = limits.max_steps - position.step
        if limits.max_epochs and position.epoch:  # only a whole epoch shows how many steps it has
            an_epoch = (position.step - position.batch) / position.epoch
            steps = min(steps, max(0, round(limits.max_epochs * an_epoch) - position.step))
        left = steps * seconds / max(position.step, 1)
        return min(left, max(0.0, 3600 * limits.max_hours - seconds)) if limits.max_hours else left

    @property
    def time_is_up(self) -> bool:
        """Whether the run has taken training.max_hours."""
        return self._over(self.seconds)

    def note(self) -> None:
        """Write what was taken up to now into the position, for the checkpoint that is about to be made."""
        self._position.seconds, self._position.device_seconds = self.spent

    def _over(self, seconds: float) -> bool:
        return bool(self._limits.max_hours) and seconds > 3600 * self._limits.max_hours
