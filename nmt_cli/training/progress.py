"""The progress of a run: its position and duration, when it ends, and what is due after a step.

A request asks all ranks for something after a step: `SAVE`, `STOP` or `TIME_UP`. With several ranks, it takes
effect a step late.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from nmt_cli.errors import UserError
from nmt_cli.training.config import CheckpointConfig, TrainConfig, TrainingConfig, ValidationConfig

SAVE, STOP, TIME_UP = 1, 2, 4
"""Requests of a rank to all ranks, as bits for `Group.agree`."""

SAVE_MINUTES = 10
"""Minutes between checkpoints without an interval in steps. The paper's base model has ten."""

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

    updates: int = 0
    """Number of updates of the optimiser's state and of the moving average. It is more than `step` if
    start.take has the optimiser without the schedule."""

    device_seconds: float = 0.0
    """Seconds times devices, where each resumed part counts its own number of devices."""

    bad_in_a_row: int = 0
    """Number of latest steps in a row that were left out because they were not finite."""

    scores: dict[str, float] = field(default_factory=dict)
    """The validation score of each validated step. Larger is better."""

    judged: dict[str, dict[str, float]] = field(default_factory=dict)
    """Every metric of the first validation set at each validated step."""

    judged_on: str = ""
    """A hash of the first validation set, or "" before the first validation."""

    bleu_tokenizer: str = ""
    """The tokeniser of BLEU in the latest validation: "char", or "auto" for that of the language. "" before
    the first one. Older versions did not store it."""

    log_bytes: int = 0
    """Length of `log.jsonl` at the last flush."""

    log_sha256: str = ""
    """SHA-256 of the first `log_bytes` bytes of `log.jsonl`. Older versions did not store it."""

    def count_bad(self, skipped: bool) -> None:
        """Count a step that was left out, or start again from 0 after a step that was taken."""
        self.bad_in_a_row = self.bad_in_a_row + 1 if skipped else 0

    def validated(self, score: float, metrics: dict[str, float], judged_on: str, bleu_tokenizer: str) -> None:
        """Store the results of a validation of the first set after the latest step.

        score: that of validation.metric. Larger is better.
        metrics: all of the set, by name.
        judged_on: a hash of the set.
        bleu_tokenizer: how BLEU cut words.
        """
        step = str(self.step)  # a checkpoint stores the position as JSON, whose keys are strings
        self.scores[step], self.judged[step] = score, metrics
        self.judged_on, self.bleu_tokenizer = judged_on, bleu_tokenizer

    def advance(self, epoch: int, batch: int) -> None:
        """Count a step on `batch` of `epoch`."""
        self.step, self.updates = self.step + 1, self.updates + 1
        self.epoch, self.batch = epoch, batch + 1


class Clock:
    """A clock of the whole run. In a resumed run, it continues from the seconds in the position."""

    def __init__(self, position: Position, limits: TrainingConfig, devices: int) -> None:
        """Start at the seconds in `position`. `devices` is the current number of devices over all ranks."""
        self._position, self._limits, self._devices = position, limits, devices
        # A copy, because the loop changes the position in place.
        self._first = replace(position)
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
        """Estimated seconds until the first limit that ends the run: max_steps, max_epochs or max_hours.

        The pace is that of the whole run so far. max_epochs counts only after an epoch has ended, since the
        steps of an epoch are unknown before.
        """
        first, now, seconds = self._first, self._position, self.seconds
        epochs, steps = now.epoch, max(0, now.step - now.batch)
        if now.epoch > first.epoch:
            # With start.take, the steps and epochs before this process may be those of different runs.
            epochs, steps = epochs - first.epoch, now.step - now.batch - (first.step - first.batch)
        pace = seconds / max(now.step, 1)
        return left(self._limits, pace, now, steps / epochs if epochs else 0, seconds)[1]

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
    limits: TrainingConfig, pace: float, position: Position, epoch_steps: float, seconds: float
) -> tuple[int, float]:
    """Return the estimated steps and seconds from `position` to the first limit: steps, epochs or hours.

    pace: seconds per step.
    epoch_steps: steps per epoch. If it is 0, epochs are ignored.
    seconds: the time that the run has taken so far.
    """
    steps = limits.max_steps - position.step
    if limits.max_epochs and epoch_steps:
        steps_of_epochs = round((limits.max_epochs - position.epoch) * epoch_steps) - position.batch
        steps = min(steps, max(0, steps_of_epochs))
    time_left = max(0.0, 3600 * limits.max_hours - seconds)
    if limits.max_hours and steps * pace > time_left:
        return int(time_left / pace), time_left
    return steps, steps * pace


def limit_reached(limits: TrainingConfig, step: int, next_epoch: int, seconds: float = 0.0) -> str:
    """Return the first limit that is reached, such as "training.max_steps=100", or "" if there is none.
    `next_epoch` is that of the next batch, from 0."""
    reached = {"max_steps": step, "max_epochs": next_epoch, "max_hours": seconds / 3600}
    for name, value in reached.items():
        if 0 < getattr(limits, name) <= value:
            return f"training.{name}={getattr(limits, name)}"
    return ""


def refuse_no_steps(config: TrainConfig, step: int, next_epoch: int, seconds: float = 0.0) -> None:
    """Raise `UserError` if a new run that takes a position (start.take) has reached a limit already."""
    if limit := limit_reached(config.training, step, next_epoch, seconds):
        raise UserError(
            f"{config.start.model} has reached {limit} already. Raise this limit, or leave schedule and data "
            "out of start.take."
        )


def interval_ended(config: ValidationConfig | CheckpointConfig, step: int) -> bool:
    """Return whether an interval of `config` ended with `step`."""
    return step > 0 and config.every_steps > 0 and step % config.every_steps == 0


def interval_in_words(config: ValidationConfig | CheckpointConfig) -> str:
    """Return the interval of `config` with its unit, such as "every 2 steps". Return "" if it is 0."""
    minutes = SAVE_MINUTES if isinstance(config, CheckpointConfig) else 0
    for number, unit in (config.every_steps, "step"), (minutes, "minute"):
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
    late: bool
    """Whether the ranks agree on requests a step late, as several ranks do."""

    def reached(self, next_epoch: int) -> bool:
        """Return whether all steps or epochs are done. `next_epoch` is that of the next batch, from 0."""
        return bool(limit_reached(self.config.training, self.position.step, next_epoch))

    def requests(self, first: bool, unsaved: float) -> int:
        """Return this rank's requests as a sum of bits.

        Each rank adds `STOP` if its user wants to stop. Only the `first` rank adds the others: `TIME_UP`
        after training.max_hours, and `SAVE` if checkpoints are saved by minutes and one is due.

        unsaved: seconds since the last save.
        """
        requests = STOP if self.stop_wanted() else 0
        if first:
            by_minutes = not self.config.checkpoints.every_steps
            requests |= SAVE if by_minutes and unsaved > 60 * SAVE_MINUTES else 0
            requests |= TIME_UP if self.clock.time_is_up else 0
        return requests

    def save_due(self, requests: int, begun: int) -> bool:
        """Return whether to save after this step: if `requests` has `SAVE`, or if an interval of checkpoints
        has ended. `begun` is the step of the latest save, which is not saved again.

        If requests are `late`, the first one after a save was made before it, and does not count.
        """
        step = self.position.step
        requested = bool(requests & SAVE) and not (self.late and begun == step - 1)
        return begun != step and (requested or interval_ended(self.config.checkpoints, step))

    def refuse_divergence(self, lines: Sequence[Mapping[str, Any]]) -> None:
        """Count in the position how many of the latest steps in a row were left out. Raise `UserError` from
        `GIVE_UP_AFTER` of them on. `lines` are those of the log since the last call."""
        for line in lines:
            self.position.count_bad(line["skipped"])
        if self.position.bad_in_a_row >= GIVE_UP_AFTER:
            raise UserError(
                f"loss or gradient were not finite in {self.position.bad_in_a_row} steps in a row, up to "
                f"step {self.position.step}. Lower the learning rate (schedule.factor or schedule.peak), "
                "warm up longer (schedule.warmup), set optimizer.clip_norm=1, or training.precision=fp32."
            )
