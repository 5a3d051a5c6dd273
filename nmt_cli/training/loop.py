"""The training loop: steps until the end, and what is due between them."""

import math
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass

from nmt_cli.data.batching.loader import Loader, LocalBatch
from nmt_cli.data.guard import DatasetGuard
from nmt_cli.errors import UserError
from nmt_cli.training.limits import STOP, TIME_UP, Limits
from nmt_cli.training.position import Position
from nmt_cli.training.step.schedule import learning_rate
from nmt_cli.training.step.trainer import Trainer
from nmt_cli.training.tracking.events import Doing, Note, Report, Warned
from nmt_cli.training.tracking.left_out import LeftOut
from nmt_cli.training.tracking.recorder import Recorder
from nmt_cli.training.tracking.saver import Moved, Saver
from nmt_cli.training.validation.stopping import patience_ended, watched_metric
from nmt_cli.training.validation.validator import Validator


@dataclass(frozen=True, slots=True)
class Loop:
    """One run, from where it stands to its end."""

    position: Position
    trainer: Trainer
    loader: Loader
    limits: Limits
    validator: Validator
    saver: Saver
    recorder: Recorder
    left_out: LeftOut
    dataset: DatasetGuard
    report: Report

    def train(self) -> bool:
        """Take all steps that are left; False if somebody wanted to stop before."""
        with closing(self.saver):
            return self._train()

    def _train(self) -> bool:
        begun_at, group = self.position.step, self.trainer.group
        self.recorder.restart_clock()
        wishes = 0
        for batch in self.loader:
            # What the ranks agreed on after the last step, so that all of them stop before the same one.
            if wishes & (STOP | TIME_UP) or self._over(batch.epoch):
                break
            self._step(batch)
            self._told(self.saver.look)
            wishes = group.agree(self.limits.wishes(group.process.first, self.saver.age))
            if self.limits.line_due() or self.recorder.late:
                self._flush()
            found_better = self.validator.due and self._validate()
            if found_better or self.limits.save_due(wishes):
                self._try_to_save()
        return self._end(begun_at, stopped=bool(wishes & STOP))

    def _over(self, next_epoch: int) -> bool:
        """Whether no step is left to take; says so where validation.patience is why."""
        if self.limits.reached(next_epoch):
            return True
        validation = self.trainer.config.validation
        ended = patience_ended(self.trainer.config, self.position.judged)
        if ended:
            told = f"{watched_metric(validation)} has not improved in {validation.patience} validations"
            self.report(Note(f"{told}; the run ends at step {self.position.step:,} (validation.patience)"))
        return ended

    def _step(self, batch: LocalBatch) -> None:
        """Take a step; what it measures stays on the device, so that nothing waits for it here."""
        self.left_out.seen(batch.epoch, batch.dropped)
        self.position.step += 1
        self.position.epoch, self.position.batch = batch.epoch, batch.number + 1
        self.report(Doing("training", self.position.step, batch.epoch))
        self.trainer.group.busy("training")
        rate = self._rate()
        measured = self.trainer.step(self.position.step, rate, batch, self.loader)
        if self.validator.ema:
            self.validator.ema.update(self.position.step)
        self.recorder.step(rate, batch, measured)

    def _rate(self) -> float:
        """Return the learning rate of the current step, the same on all ranks."""
        config = self.trainer.config
        width, steps = config.model.width, config.training.max_steps
        timed = config.training.max_hours and config.schedule.kind in ("linear", "cosine")
        # Each rank has a clock of its own.
        time_used = self.trainer.group.from_first(self.limits.clock.share_used) if timed else 0.0
        plateaus = self.validator.plateaus
        return learning_rate(config.schedule, self.position.step, width, steps, plateaus, time_used)

    def _flush(self) -> None:
        """Write down what was measured, and see whether it and the dataset are sound so far."""
        self.dataset.check_quickly()
        if lines := self.recorder.flush(self.loader.waited):
            self.limits.refuse_divergence(lines)

    def _validate(self) -> bool:
        """Judge the model; True if this is one of the checkpoints to keep for its score."""
        self._flush()
        if self.dataset.is_gone():
            self._try_to_save()
            self._told(self.saver.wait)
            raise UserError(
                f"the dataset was moved, removed or replaced, so that nothing can be judged at step "
                f"{self.position.step:,}; put it back, and the same command goes on from {self.saver.step:,}."
            )
        self.report(Doing("validating", self.position.step, self.position.epoch))
        self.trainer.group.busy("validating")
        start = time.perf_counter()
        best, plateaus = max(self.position.scores.values(), default=-math.inf), self.validator.plateaus
        judgements = self.validator.validate()
        better = self.position.scores[str(self.position.step)] > best
        seconds = time.perf_counter() - start
        self.recorder.validated(judgements, self.validator.decoded, best=better, seconds=seconds)
        if self.validator.plateaus > plateaus:
            self.report(Note(f"a plateau: the learning rate is {self._rate():.2e} from here on"))
        self.recorder.standing("training")
        self.recorder.restart_clock()
        # All ranks save together, but the first alone is sure to see the run folder.
        return self.trainer.group.from_first(self.position.step in self.saver.best_steps())

    def _try_to_save(self) -> None:
        """Begin to write a checkpoint; where that fails, training goes on, and the one before stays."""
        self._flush()
        self.dataset.check_all_ranks()
        self._told(self.saver.wait)
        self._told(self.saver.save)
        self.recorder.restart_clock()

    def _told(self, saving: Callable[[], None]) -> None:
        """Do a part of saving, and warn if it fails."""
        try:
            saving()
        except Moved:
            raise
        except (UserError, OSError) as error:
            self.report(Warned(f"step {self.saver.begun} could not be saved, training goes on: {error}"))

    def _end(self, begun_at: int, stopped: bool) -> bool:
        """What is due after the last step; this time a failure to save is an error."""
        unjudged = not self.validator.done
        judge = unjudged and self.validator.wanted and not stopped
        if judge:
            self._validate()
        self._flush()
        self.left_out.end()
        self.dataset.check_all_ranks()
        self._told(self.saver.wait)
        if judge or self.saver.step != self.position.step:
            self.saver.save()
            self.saver.wait()  # nobody leaves before all is saved
        # A run that was asked to stop in its very last step is complete all the same.
        complete = not stopped or self.position.step >= self.trainer.config.training.max_steps
        if self.position.step > begun_at or unjudged:  # else the report says so already
            self.recorder.standing("done" if complete else "stopped")
        if complete and self.trainer.group.process.first:
            self.report(self.recorder.spent())
        return complete
