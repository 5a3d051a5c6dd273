"""Records the steps and validations of a run in its log, and reports them as events.

It also warns about training pairs that are left out because they are too long.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from nmt_cli.data.batching.loader import LocalBatch
from nmt_cli.model.cost import training_flops
from nmt_cli.runtime.memory import peak_memory
from nmt_cli.training.config import TrainConfig
from nmt_cli.training.progress import Clock, Position
from nmt_cli.training.tracking.events import (
    Progress,
    Report,
    Spent,
    Standing,
    State,
    Validated,
    Warned,
)
from nmt_cli.training.tracking.log import Log
from nmt_cli.training.validation.judge import Judgement

SECONDS_BETWEEN_FLUSHES = 10.0


class LeftOut:
    """Warns after an epoch about training pairs that are too long, unless the last warning named the same
    number."""

    def __init__(self, config: TrainConfig, report: Report) -> None:
        limits = (config.batch.longest, "batch.longest"), (config.batch.tokens, "batch.tokens")
        self._limit, self._setting = min(limits)
        self._sampled = config.sampling.enabled or config.augment.enabled
        self._report = report
        self._epoch = self._count = self._reported = 0

    def seen(self, epoch: int, count: int) -> None:
        """Record that `count` pairs of `epoch` were left out so far. If this is the first batch of an epoch,
        warn about the epoch before."""
        # An epoch is planned while it runs, so only its last batch has the full count.
        if epoch > self._epoch and self._count != self._reported:
            self._warn()
        self._epoch, self._count = epoch, count

    def end(self) -> None:
        """At the end of the run, warn if pairs are left out and there was no warning before."""
        if self._count and not self._reported:
            self._warn()

    def _warn(self) -> None:
        segmented = f", as epoch {self._epoch} segments them," if self._sampled else ""
        problem = f"{self._count:,} pairs{segmented} have more than {self._limit:,} tokens on a side"
        self._report(Warned(f"{problem} and are left out ({self._setting})"))
        self._reported = self._count


class Recorder:
    """Writes steps and validations to the log, and reports them as events."""

    def __init__(
        self,
        config: TrainConfig,
        vocabulary: int,
        position: Position,
        clock: Clock,
        log: Log,
        report: Report,
    ) -> None:
        """Start without steps.

        vocabulary: the number of entries of the target vocabulary, for the cost of the run.
        position: where the run is. It gets the size and the hash of the log.
        """
        self._config, self._vocabulary, self._position, self._clock = config, vocabulary, position, clock
        self._log, self._report = log, report
        self.left_out = LeftOut(config, report)
        self._waited = 0.0
        self._device = torch.device("cpu")
        """The device of the latest step."""

    @property
    def late(self) -> bool:
        """True if the last flush was over `SECONDS_BETWEEN_FLUSHES` seconds ago."""
        return self._log.age > SECONDS_BETWEEN_FLUSHES

    def step(self, rate: float, batch: LocalBatch, measured: Tensor) -> None:
        """Keep a step, `measured` by `Trainer.step`, for `flush`."""
        self.left_out.seen(batch.epoch, batch.dropped)
        self._device = measured.device
        self._log.add(self._position.step, rate, batch, measured)

    def flush(self, waited: float) -> list[dict[str, Any]]:
        """Write, report and return the lines of the steps since the last flush.

        waited: the seconds that the run has waited for data so far. The position gets the size and the hash
            of the log.
        """
        seconds, self._waited = waited - self._waited, waited
        waiting = seconds / max(self._log.age, 1e-9)
        lines = self._log.flush(waiting)
        # A run that resumes from a checkpoint finds out from them if its log was lost or changed.
        self._position.log_bytes, self._position.log_sha256 = self._log.written
        if lines:
            self._report(self._progress(lines, waiting))
        return lines

    def validated(self, judgements: Sequence[Judgement], decoded: str, *, best: bool, seconds: float) -> None:
        """Write a line per judgement of the last step, and report the validation, which took `seconds`.
        `decoded` is "weights" or "ema". `best` says whether the validation is the best so far."""
        step = self._position.step
        lines = (
            {"step": step, "valid": judgement.name, "decoded": decoded, **judgement.line()}
            for judgement in judgements
        )
        self._log.write(lines)
        self._report(Validated(step, judgements, best, seconds, decoded))

    def standing(self, state: State) -> None:
        """Report the state, cost and remaining time of the run, for readers that show the whole run."""
        self._report(Standing(state, self.spent(), self._clock.seconds_left))

    def spent(self) -> Spent:
        """Return operations, hours and device hours of the run. Operations exclude unflushed steps."""
        config, now = self._config, self._log.history.now
        flops = training_flops(config.model, self._vocabulary, now.source_tokens, now.target_tokens)
        seconds, device_seconds = self._clock.spent
        return Spent(config.loss.draws * flops, seconds / 3600, device_seconds / 3600)

    def restart_clock(self) -> None:
        """Restart the measurement of speed, so that validation and saving do not count."""
        self._log.restart_clock()

    def _progress(self, lines: Sequence[Mapping[str, Any]], waiting: float) -> Progress:
        """Return the progress event for the steps in `lines`. Losses are means over the latest steps, and
        speed and rate are those of the last line. `waiting` is the fraction of time spent on waiting."""
        history = self._log.history
        losses, bleu = history.losses, history.scores("bleu")
        return Progress(
            step=self._position.step,
            max_steps=self._config.training.max_steps,
            epoch=self._position.epoch,
            epoch_of=lines[-1].get("epoch_of", ""),
            loss=losses.smoothed,
            nll=losses.nll,
            learning_rate=lines[-1]["learning_rate"],
            tokens_per_second=lines[-1]["tokens_per_second"],
            seconds=self._clock.seconds,
            seconds_left=self._clock.seconds_left,
            waiting=waiting,
            filler=lines[-1]["filler"],
            skipped=sum(line["skipped"] for line in lines),
            memory=peak_memory(self._device),
            bleu=(bleu[-1], max(bleu)) if bleu else None,
            bleu_on=history.validations[-1].line.get("scored_on", "") if bleu else "",
        )
