"""The training loop: steps until the end, and what is due between them."""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from nmt_cli.checkpoints.model_folder import Identity, weights
from nmt_cli.checkpoints.run_folder import BEST, Checkpoint, checkpoints, keep_only, point, save_checkpoint
from nmt_cli.data.dataset import Split
from nmt_cli.data.loader import Loader, LocalBatch
from nmt_cli.errors import UserError
from nmt_cli.machine.memory import most_memory
from nmt_cli.training.config import TrainConfig
from nmt_cli.training.judging.stopping import measures, patience_ended, plateaus, watched_metric
from nmt_cli.training.judging.validation import Judge, Judgement, sample_lines, validation_score
from nmt_cli.training.record.events import Doing, Note, Progress, Report, Saved, Validated, Warned
from nmt_cli.training.record.html_report import Clock, HtmlReport, State
from nmt_cli.training.record.log import Log
from nmt_cli.training.step.ema import Ema
from nmt_cli.training.step.optimizer import optimizer_tensors
from nmt_cli.training.step.schedule import learning_rate
from nmt_cli.training.step.trainer import Trainer

SAVE, STOP, TIME_UP = 1, 2, 4
SECONDS_BETWEEN_FLUSHES = 10.0


@dataclass(slots=True)
class Position:
    """How far a run has come: what a checkpoint keeps besides tensors."""

    step: int = 0
    epoch: int = 0
    batch: int = 0
    """The next batch of the epoch."""

    seconds: float = 0.0
    """Spent up to here, all resumed parts added up."""

    device_seconds: float = 0.0
    """The same, each part times the devices it had."""

    bad_in_a_row: int = 0
    """Steps that were left out, up to here."""

    scores: dict[str, float] = field(default_factory=dict)
    """The validation score of each step that was judged; larger is better."""

    judged: dict[str, dict[str, float]] = field(default_factory=dict)
    """Every metric of the first validation set at each of these steps."""


@dataclass(slots=True)
class Loop:
    """One run, from where it stands to its end."""

    run: Path
    config: TrainConfig
    identity: Identity
    trainer: Trainer
    loader: Loader
    judge: Judge
    log: Log
    position: Position
    verified: "Future[None]"
    """Fails where the dataset is not what was written; looked at now and then."""

    report: Report
    stop_wanted: Callable[[], bool]
    ema: Ema | None = None
    """The moving average of the weights, which then is what validation judges."""

    page: HtmlReport | None = None
    """The first rank's."""

    _first_step: int = field(init=False)
    _before: float = field(init=False)
    """Seconds that had been spent when this process began."""

    _began: float = field(init=False)
    _saved_at: float = field(init=False)
    _saved_step: int = field(init=False)
    _waited: float = field(init=False, default=0.0)
    _dropped: int = field(init=False, default=0)
    _dropped_told: int = field(init=False, default=0)

    def train(self) -> bool:
        """Take all steps that are left; False if somebody wanted to stop before."""
        self._saved_at = time.perf_counter()
        self._before, self._first_step = self.position.seconds, self.position.step
        self._began = self._saved_at - self._before
        self._saved_step = self.position.step
        wishes = 0
        for step in self.loader:
            if wishes & (STOP | TIME_UP) or self._complete(step.epoch):
                break
            self._tell_dropped(step)
            self.position.step += 1
            self.position.epoch, self.position.batch = step.epoch, step.number + 1
            self.report(Doing("training", self.position.step, step.epoch))
            rate = self._rate()
            measured = self.trainer.step(self.position.step, rate, step, self.loader)
            if self.ema:
                self.ema.update(self.position.step)
            self.log.add(self.position.step, rate, step, measured)
            wishes = self.trainer.group.agree(self._wishes())
            self._flush_if_due()
            found_better = self._validation_due() and self._validate()
            if found_better or self._save_due(wishes):
                self._save()
        return self._end(stopped=bool(wishes & STOP))

    def _tell_dropped(self, step: LocalBatch) -> None:
        """Say how many pairs were too long when an epoch has shown them all; the same number only once."""
        if step.epoch > self.position.epoch and self._dropped != self._dropped_told:
            self._warn_dropped()
        self._dropped = step.dropped

    def _warn_dropped(self) -> None:
        limit = min(self.config.batch.longest, self.config.batch.tokens)
        anew = f", as epoch {self.position.epoch} segments them," if self.config.sampling.wanted else ""
        told = f"{self._dropped:,} pairs{anew} have more than {limit:,} tokens on a side and are left out"
        self.report(Warned(f"{told} (batch.longest)"))
        self._dropped_told = self._dropped

    def _rate(self) -> float:
        width, steps = self.config.model.width, self.config.training.max_steps
        return learning_rate(self.config.schedule, self.position.step, width, steps, self._plateaus())

    def _plateaus(self) -> int:
        return plateaus(self.config, self.position.judged) if self.config.schedule.kind == "plateau" else 0

    def _complete(self, next_epoch: int) -> bool:
        limits = self.config.training
        epochs_done = bool(limits.max_epochs) and next_epoch >= limits.max_epochs
        time_up = bool(limits.max_hours) and self._before > 3600 * limits.max_hours
        reached = self.position.step >= limits.max_steps or epochs_done or time_up
        return reached or self._standing_still()

    def _standing_still(self) -> bool:
        """Whether patience with validation has ended; says so."""
        ended = patience_ended(self.config, self.position.judged)
        if ended:
            watched = watched_metric(self.config.validation)
            told = f"{watched} has not improved in {self.config.validation.patience} validations"
            self.report(Note(f"{told}; the run ends at step {self.position.step:,} (validation.patience)"))
        return ended

    def _wishes(self) -> int:
        """What this rank wants, time being the first rank's affair."""
        wishes = STOP if self.stop_wanted() else 0
        if self.trainer.group.process.first:
            kept, limits = self.config.checkpoints, self.config.training
            due = time.perf_counter() - self._saved_at > 60 * kept.every_minutes
            wishes |= SAVE if due and not kept.every_steps else 0
            wishes |= TIME_UP if limits.max_hours and self._seconds() > 3600 * limits.max_hours else 0
        return wishes

    def _seconds(self) -> float:
        return time.perf_counter() - self._began

    def _flush_if_due(self) -> None:
        by_steps = self.position.step % self.config.training.log_every == 0
        if by_steps or self.log.age > SECONDS_BETWEEN_FLUSHES:
            self._flush()

    def _flush(self) -> None:
        waited, self._waited = self.loader.waited - self._waited, self.loader.waited
        waiting = waited / max(self.log.age, 1e-9)
        if self.verified.done():
            self.verified.result()
        lines = self.log.flush(waiting)
        if not lines:
            return
        for line in lines:
            self.position.bad_in_a_row = (self.position.bad_in_a_row + 1) * line["skipped"]
        self.report(self._progress(lines, waiting))
        if self.position.bad_in_a_row >= self.config.training.give_up_after:
            raise UserError(
                f"loss or gradient were not finite in {self.position.bad_in_a_row} steps in a row, up to "
                f"step {self.position.step}; lower the learning rate (schedule.factor or schedule.peak), "
                "warm up longer (schedule.warmup), set optimizer.clip_norm=1, or training.precision=fp32."
            )

    def _progress(self, lines: list[dict[str, Any]], waiting: float) -> Progress:
        good = [line for line in lines if not line["skipped"]] or lines
        tokens = sum(line["target_tokens"] for line in good)
        loss, nll = (
            sum(line[key] * line["target_tokens"] for line in good) / tokens for key in ("loss", "nll")
        )
        return Progress(
            step=self.position.step,
            max_steps=self.config.training.max_steps,
            epoch=self.position.epoch,
            loss=loss,
            nll=nll,
            learning_rate=lines[-1]["learning_rate"],
            tokens_per_second=lines[-1]["tokens_per_second"],
            seconds=self._seconds(),
            seconds_left=self._seconds_left(),
            waiting=waiting,
            filler=lines[-1]["filler"],
            skipped=sum(line["skipped"] for line in lines),
            memory=most_memory(self.trainer.group.device),
            bleu=self.page.bleu if self.page else None,
        )

    def _seconds_left(self) -> float:
        """Until the last step, by the pace of the whole run; how long an epoch is shows in the second."""
        position, limits, seconds = self.position, self.config.training, self._seconds()
        steps = limits.max_steps - position.step
        if limits.max_epochs and position.epoch:
            an_epoch = (position.step - position.batch) / position.epoch
            steps = min(steps, max(0, round(limits.max_epochs * an_epoch) - position.step))
        left = steps * seconds / max(position.step, 1)
        return min(left, max(0.0, 3600 * limits.max_hours - seconds)) if limits.max_hours else left

    def _write_page(self, state: State) -> None:
        if self.page:
            self.page.write(state, self._clock())

    def _clock(self) -> Clock:
        now = self._seconds()
        more = (now - self.position.seconds) * self.trainer.group.process.world
        return Clock(now, self.position.device_seconds + more, self._seconds_left())

    def _validation_due(self) -> bool:
        every = self.config.validation.every_steps
        return bool(every and self.judge.sets) and self.position.step % every == 0

    def _validate(self) -> bool:
        """Judge the model; True if this is one of the checkpoints to keep for its score."""
        self._flush()
        self.report(Doing("validating", self.position.step, self.position.epoch))
        start = time.perf_counter()
        judgements = self.judgements(self.judge.sets)
        score = validation_score(judgements[0], self.config.validation.metric)
        before = list(self.position.scores.values())
        self.position.scores[str(self.position.step)] = score
        plateaus_before = self._plateaus()
        self.position.judged[str(self.position.step)] = measures(judgements[0])
        self.log.write([_line(self.position.step, judgement, self.decoded) for judgement in judgements])
        best = score > max(before, default=float("-inf"))
        seconds = time.perf_counter() - start
        self.report(Validated(self.position.step, judgements, best, seconds, self.decoded))
        if self._plateaus() > plateaus_before:
            self.report(Note(f"a plateau: the learning rate is {self._rate():.2e} from here on"))
        self._write_page("training")
        self.log.restart_clock()
        return self.position.step in self._best_steps()

    @property
    def decoded(self) -> str:
        """Which of the two validation judges."""
        return "ema" if self.ema else "weights"

    def judgements(self, sets: Sequence[Split]) -> list[Judgement]:
        """What validation sets say of the model."""
        with self.ema.in_place() if self.ema else nullcontext():
            return [self.judge.judge(self.trainer.model, split) for split in sets]

    def _best_steps(self) -> set[int]:
        """The steps whose scores are the best, of those that can still be kept."""
        there = {*checkpoints(self.run), self.position.step}
        ranked = sorted(
            (-score, int(step)) for step, score in self.position.scores.items() if int(step) in there
        )
        return {step for _, step in ranked[: self.config.checkpoints.keep_best]}

    def _save_due(self, wishes: int) -> bool:
        every = self.config.checkpoints.every_steps
        return bool(wishes & SAVE) or bool(every and self.position.step % every == 0)

    def _save(self) -> None:
        """Write a checkpoint; where that fails, training goes on, and the one before stays."""
        self._flush()
        try:
            self._write()
        except (UserError, OSError) as error:
            self.report(Warned(f"step {self.position.step} could not be saved, training goes on: {error}"))
        self.log.restart_clock()

    def _write(self) -> None:
        self._saved_at = time.perf_counter()
        self.report(Doing("saving", self.position.step, self.position.epoch))
        clock = self._clock()
        self.position.seconds, self.position.device_seconds = clock.seconds, clock.device_seconds
        if self.trainer.group.process.first:
            place = save_checkpoint(self.run, self.identity, self.checkpoint())
            self._tidy()
            self.report(Saved(self.position.step, place))
        self._saved_step = self.position.step

    def checkpoint(self) -> Checkpoint:
        """Where the run stands."""
        trainer = self.trainer
        tensors = optimizer_tensors(trainer.model, trainer.optimizer) | trainer.scale.tensors()
        progress = {**asdict(self.position), "world": trainer.group.process.world}
        progress["dataset"] = str(self.judge.dataset.folder.resolve())
        ema = self.ema.tensors if self.ema else {}
        return Checkpoint(self.position.step, weights(trainer.model), tensors, progress, ema)

    def _tidy(self) -> None:
        """Point to the best, and remove what need not be kept."""
        there, best = checkpoints(self.run), self._best_steps()
        if best:
            top = max(best, key=lambda step: self.position.scores[str(step)])
            point(self.run, BEST, there[top])
        keep_only(self.run, {*list(there)[-self.config.checkpoints.keep_last :], *best})

    def _end(self, stopped: bool) -> bool:
        """What is due after the last step; this time a failure to save is an error."""
        unjudged = str(self.position.step) not in self.position.scores
        if not stopped and self.config.validation.every_steps and self.judge.sets and unjudged:
            self._validate()
            self._saved_step = -1
        self._flush()
        if self._dropped and not self._dropped_told:
            self._warn_dropped()
        if not stopped:
            self.verified.result()
        if self._saved_step != self.position.step:
            self._write()
        self.trainer.group.gather(None)  # nobody leaves before all is saved
        complete = not stopped or self.position.step >= self.config.training.max_steps
        if self.position.step > self._first_step or unjudged:  # else the page says so already
            self._write_page("done" if complete else "stopped")
        if self.page and complete:
            self.report(self.page.spent(self._clock()))
        return complete


def _line(step: int, judgement: Judgement, decoded: str) -> dict[str, Any]:
    """A validation's line in the log."""
    return {
        "step": step,
        "valid": judgement.name,
        "decoded": decoded,
        "nll": judgement.nll,
        "perplexity": judgement.perplexity,
        "word_perplexity": judgement.word_perplexity,
        **{score.metric: score.value for score in judgement.scores},
        "samples": {line: judgement.translations[line] for line in sample_lines(len(judgement.translations))},
        "signatures": {score.metric: score.signature for score in judgement.scores},
    }
