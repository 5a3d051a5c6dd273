"""The training loop: the steps of a run, with validation and saving between them.

A request asks all ranks for something after a step: to save, to stop, or to end because the hours are over.
It is a bit of `progress.SAVE`, `STOP` and `TIME_UP`. A run diverges if the loss or gradient of ten steps in a
row is not finite.
"""

import math
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass

from nmt_cli.data.batching.loader import Loader, LocalBatch
from nmt_cli.data.guard import DatasetGuard
from nmt_cli.errors import UserError
from nmt_cli.training.progress import STOP, TIME_UP, Limits, Position, refuse_no_steps
from nmt_cli.training.step.distributed import LostContact
from nmt_cli.training.step.schedule import learning_rate
from nmt_cli.training.step.trainer import Trainer
from nmt_cli.training.tracking.events import Doing, Note, Report, Warned
from nmt_cli.training.tracking.recorder import Recorder
from nmt_cli.training.tracking.saver import Moved, Saver
from nmt_cli.training.validation.validator import Validator, patience_ended


@dataclass(frozen=True, slots=True)
class Loop:
    """The training loop of one run, from its current position to its end."""

    position: Position
    trainer: Trainer
    loader: Loader
    limits: Limits
    validator: Validator
    saver: Saver
    recorder: Recorder
    dataset: DatasetGuard
    report: Report
    resumed: bool

    def train(self) -> bool:
        """Take all remaining steps, with validation and saving between them. Return False if the user stopped
        the run.

        Raise `UserError` if the run diverges, if the dataset or the run folder has changed, and if the last
        checkpoint cannot be saved.
        """
        first_step, group, requests = self.position.step, self.trainer.group, 0
        self.recorder.restart_clock()
        with closing(self.saver):
            for batch in self.loader:
                stepped = self.resumed or self.position.step > first_step
                if not stepped:
                    refuse_no_steps(self.trainer.config, first_step, batch.epoch)
                # After a stop, there may be no time to validate. `_end` does both after the last step.
                if stepped and not requests & STOP and not self.limits.reached(batch.epoch):
                    self._validate_and_save(requests)
                # The ranks agreed on the requests after the last step, so all stop before the same step.
                if requests & STOP or self._is_over(batch.epoch, requests):
                    break
                if self.resumed and self.position.step == first_step:
                    self.report(Note(f"resuming from step {first_step:,}"))
                self._step(batch)
                # Writing takes seconds in another thread. Its failure is reported at the next step.
                self._warn_on_failure(self.saver.look)
                requests = group.agree(self.limits.requests(group.process.first, self.saver.age))
                line_due = self.position.step % self.trainer.config.training.log_every == 0
                if line_due or self.recorder.late:
                    self._flush()
            return self._end(first_step, stopped=bool(requests & STOP))

    def _is_over(self, next_epoch: int, requests: int) -> bool:
        """Return whether a limit or validation.patience ends the run. If the run ends before its last step
        and epoch, report why."""
        if self.limits.reached(next_epoch):
            return True
        if reason := early_end(self.limits, requests):
            self.report(Note(reason))
        return bool(reason)

    def _step(self, batch: LocalBatch) -> None:
        """Take a step on `batch`, update the position and the average weights, and record the step."""
        self.position.advance(batch.epoch, batch.number)
        self.report(Doing("training", self.position.step, batch.epoch))
        self.trainer.group.busy("training")
        rate = self._learning_rate()
        measured = self.trainer.step(self.position.step, rate, batch, self.loader)
        if self.validator.ema:
            # Not by the step: a run that took the average of another one begins at step 0, where the average
            # would fade within a few steps.
            self.validator.ema.update(self.position.updates)
        self.recorder.step(rate, batch, measured)

    def _learning_rate(self) -> float:
        """Return the learning rate of this step. If the rate depends on time, use the first rank's clock."""
        config = self.trainer.config
        width, steps = config.model.width, config.training.max_steps
        share_used = self.limits.clock.share_used
        time_used = self.trainer.group.from_first(share_used) if config.is_timed else 0.0
        plateaus = self.validator.plateaus
        return learning_rate(config.schedule, self.position.step, width, steps, plateaus, time_used)

    def _flush(self) -> None:
        """Check the dataset, then log the latest steps. Raise `UserError` for bad data or divergence."""
        self.dataset.check_quickly()
        if lines := self.recorder.flush(self.loader.waited):
            self.limits.refuse_divergence(lines)

    def _validate_and_save(self, requests: int) -> None:
        """Validate and save after the last step, if an interval has ended or a request asks for it. The ranks
        agreed on `requests` after that step."""
        is_among_best = self.validator.due and self._validate()
        if is_among_best or self.limits.save_due(requests, self.saver.begun):
            self._try_to_save()

    def _validate(self) -> bool:
        """Validate the model, log and report the results, and return whether this step is one of the best to
        keep.

        If the dataset is gone, save a checkpoint and raise `UserError`, so that no step is lost.
        """
        self._flush()
        if self.dataset.is_gone():
            self._try_to_save()
            self._warn_on_failure(self.saver.wait)
            raise UserError(
                f"the dataset was moved, removed or replaced, so step {self.position.step:,} cannot be "
                "validated. Put it back, and run the same command again to resume from step "
                f"{self.saver.step:,}."
            )
        self.report(Doing("validating", self.position.step, self.position.epoch))
        self.trainer.group.busy("validating")
        start = time.perf_counter()
        best, plateaus = max(self.position.scores.values(), default=-math.inf), self.validator.plateaus
        judgements = self.validator.validate()
        is_best = self.position.scores[str(self.position.step)] > best
        seconds = time.perf_counter() - start
        self.recorder.validated(judgements, self.validator.decoded, best=is_best, seconds=seconds)
        if self.validator.plateaus > plateaus:
            self.report(Note(f"a plateau: the learning rate is {self._learning_rate():.2e} from here on"))
        self.recorder.standing("training")
        self.recorder.restart_clock()
        # All ranks save together, but only the first is sure to see the run folder.
        return self.trainer.group.from_first(self.position.step in self.saver.best_steps())

    def _try_to_save(self) -> None:
        """Wait for the checkpoint being written, and start to write the next one.

        If writing fails, only warn: the run continues, and a later save may succeed. Raise `UserError` if the
        dataset has changed on a rank, or if the run folder was moved, because then no later save would be
        sound.
        """
        self._flush()
        self.dataset.check_all_ranks()
        self._warn_on_failure(self.saver.wait)
        self._warn_on_failure(self.saver.save)
        self.recorder.restart_clock()

    def _warn_on_failure(self, saving: Callable[[], None]) -> None:
        """Call `saving`. Turn a `UserError` or `OSError` into a warning, except `Moved` and `LostContact`."""
        try:
            saving()
        except (Moved, LostContact):
            raise
        except (UserError, OSError) as error:
            self.report(Warned(f"step {self.saver.begun} could not be saved, training continues: {error}"))

    def _end(self, first_step: int, stopped: bool) -> bool:
        """Validate and save the last step, if not yet done, and report the state. Return whether the run is
        complete.

        first_step: the step at which this process began.
        stopped: whether the user stopped the run. Then the last step is not validated, since there may be
            no time for it.

        An error of saving is raised here, because no later save follows.
        """
        unvalidated = not self.validator.done
        validates = unvalidated and self.validator.enabled and not stopped
        if validates:
            self._validate()
        self._flush()
        self.recorder.left_out.end()
        self.dataset.check_all_ranks()
        self._warn_on_failure(self.saver.wait)
        if validates or self.saver.step != self.position.step:
            self.saver.save()
            self.saver.wait()  # no rank leaves before all is saved
        # A run that is stopped in its very last step is complete, if it has nothing to validate.
        last = self.position.step >= self.trainer.config.training.max_steps
        complete = not stopped or (last and not (unvalidated and self.validator.enabled))
        if self.position.step == first_step and not unvalidated:
            return complete  # the reports show this state already
        self.recorder.standing("done" if complete else "stopped")
        if complete and self.trainer.group.process.first:
            self.report(self.recorder.spent())
        return complete


def early_end(limits: Limits, requests: int) -> str:
    """Return why the run ends before its last step and epoch: by its hours or its patience. Otherwise return
    an empty text."""
    config, position = limits.config, limits.position
    if requests & TIME_UP or limits.clock.began_late:
        reason, setting = f"{config.training.max_hours:g} hours are over", "training.max_hours"
    elif patience_ended(config, position.judged):
        count, metric = config.validation.patience, config.validation.metric
        reason, setting = f"{metric} has not improved in {count} validations", "validation.patience"
    else:
        return ""
    return f"{reason}; the run ends at step {position.step:,} ({setting})"
