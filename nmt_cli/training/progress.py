"""The progress of a run: its position and duration, when it ends, and what is due after a step."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from nmt_cli.errors import UserError
from nmt_cli.training.config import CheckpointConfig, TrainConfig, TrainingConfig, ValidationConfig

SAVE, STOP, TIME_UP = 1, 2, 4
"""Requests of a rank to all ranks, as bits for `Group.agree`."""

GIVE_UP_AFTER = 10
"""A run ends after this many steps in a row that were left out because loss or gradient were not finite."""


@dataclass(slots=True)
class Position:
    """Everything that a checkpoint keeps besides tensors, in state.json. All parts of the loop share it."""

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
        epoch_steps = max(0, position.step - position.batch) / position.epoch if position.epoch else 0
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


def interval_ended(config: ValidationConfig | CheckpointConfig, step: int, epochs: int) -> bool:
    """Return whether an interval of `config` in epochs or steps ended with `step`. `epochs` is the number of
    complete epochs if the step was the last of one, else 0."""
    if config.every_epochs:
        return epochs > 0 and epochs % config.every_epochs == 0
    return step > 0 and config.every_steps > 0 and step % config.every_steps == 0


def interval_in_words(config: ValidationConfig | CheckpointConfig) -> str:
    """Return the interval of `config` with its unit, such as "every 2 epochs". Return "" if it is 0."""
    minutes = config.every_minutes if isinstance(config, CheckpointConfig) else 0
    for number, unit in (config.every_epochs, "epoch"), (config.every_steps, "step"), (minutes, "minute"):
        if number:
            return f"every {unit}" if number == 1 else f"every {number:,.10g} {unit}s"
    return ""


@dataclass(frozen=True, slots=True)
class Limits:
    """Decides when a run ends or saves. `stop_wanted` returns whether the user asked this process to stop."""

    config: TrainConfig
    position: Position
    clock: Clock
    stop_wanted: Callable[[], bool]

    def reached(self, next_epoch: int) -> bool:
        """Return whether all steps or epochs are done. `next_epoch` is that of the next batch, from 0."""
        limits = self.config.training
        epochs_done = bool(limits.max_epochs) and next_epoch >= limits.max_epochs
        return self.position.step >= limits.max_steps or epochs_done

    def requests(self, first: bool, unsaved: float) -> int:
        """Return this rank's requests as a sum of bits: `STOP` if the user wants to stop. If this rank is
        `first`, add `TIME_UP` after training.max_hours. If saving by minutes is on and due, the first rank
        also adds `SAVE`. `unsaved` is the seconds since the last save."""
        requests = STOP if self.stop_wanted() else 0
        if first:
            config = self.config.checkpoints
            by_minutes = not (config.every_steps or config.every_epochs)
            requests |= SAVE if by_minutes and unsaved > 60 * config.every_minutes else 0
            requests |= TIME_UP if self.clock.time_is_up else 0
        return requests

    def save_due(self, requests: int, epochs: int) -> bool:
        """Return whether `requests` has `SAVE`, or an interval of checkpoints ended. See `interval_ended`."""
        return bool(requests & SAVE) or interval_ended(self.config.checkpoints, self.position.step, epochs)

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
