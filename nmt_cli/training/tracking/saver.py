"""The checkpoints of a run: what goes into one, when one was written, and which of them stay."""

import time
from collections.abc import Collection, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import asdict, dataclass
from os.path import samestat
from pathlib import Path

from nmt_cli.checkpoints.finding import BEST, checkpoints
from nmt_cli.checkpoints.model_folder import Identity, weights
from nmt_cli.checkpoints.run_folder import Checkpoint, keep_only, point, save_checkpoint
from nmt_cli.errors import UserError
from nmt_cli.training.clock import Clock
from nmt_cli.training.config import CheckpointConfig
from nmt_cli.training.position import Position
from nmt_cli.training.step.ema import Ema
from nmt_cli.training.step.trainer import Trainer
from nmt_cli.training.tracking.events import Doing, Report, Saved


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The live parts of a run that a checkpoint is made of."""

    identity: Identity
    trainer: Trainer
    ema: Ema | None
    position: Position
    dataset: Path

    def checkpoint(self) -> Checkpoint:
        """A checkpoint of them as they are now, the same on all ranks, which all call it; its tensors are the
        live ones, to be written or copied before the next step."""
        trainer = self.trainer
        gathered = [trainer.group.whole] if trainer.optimizer.split else []
        tensors = trainer.optimizer.tensors(*gathered) | trainer.scale.tensors()
        progress = {**asdict(self.position), "world": trainer.group.process.world}
        progress["dataset"] = str(self.dataset.resolve())
        ema = self.ema.tensors if self.ema else {}
        return Checkpoint(self.position.step, weights(trainer.model), tensors, progress, ema)


class Moved(UserError):
    """The run folder is gone from its path, so that the run has nowhere to save."""


class Saver:
    """Writes checkpoints into a run folder, one at a time while training goes on, and removes those that need
    not stay."""

    def __init__(
        self, run: Path, snapshot: Snapshot, config: CheckpointConfig, clock: Clock, report: Report
    ) -> None:
        self._run, self._snapshot, self._config = run, snapshot, config
        self._clock, self._report = clock, report
        self._position = snapshot.position
        self._began = time.perf_counter()
        self._folder = run.stat() if snapshot.trainer.group.process.first else None
        self._writer = ThreadPoolExecutor(1, "saver")
        self._writing: Future[Path] | None = None
        self.begun = self.step = self._position.step
        """The step of the checkpoint that was begun last, and of the newest that is on disk."""

    @property
    def age(self) -> float:
        """Seconds since the newest checkpoint was begun, or the last attempt that failed."""
        return time.perf_counter() - self._began

    def save(self) -> None:
        """Start to write a checkpoint, on the first rank only. All ranks call it, after `wait`.

        Raises `Moved` if the run folder is not the one that the run started in.
        """
        # The lock on the folder keeps it open, so that no other folder gets its number.
        if self._folder and not (self._run.is_dir() and samestat(self._folder, self._run.stat())):
            raise Moved(
                f"{self._run} was moved, removed or replaced, so step {self._position.step:,} is not saved; "
                f"move it back, or give its new path as --out, to resume from step {self.step:,}."
            )
        # Set first: if saving fails, the next attempt is minutes away, not a step.
        self._began = time.perf_counter()
        self._report(Doing("saving", self._position.step, self._position.epoch))
        # Before the snapshot, which keeps the time that the run has taken.
        self._clock.note()
        self.begun = self._position.step
        checkpoint = self._snapshot.checkpoint()
        if self._snapshot.trainer.group.process.first:
            scores = dict(self._position.scores)
            self._writing = self._writer.submit(self._write, checkpoint.copied(), scores)

    def look(self) -> None:
        """Tell of a checkpoint that has been written since it was begun; raises what went wrong with it."""
        if self._writing and self._writing.done():
            written, self._writing = self._writing, None
            folder = written.result()
            self.step = self.begun
            self._report(Saved(self.step, folder))

    def wait(self) -> None:
        """Wait until what was begun is on disk, then `look`; all ranks call it, and agree on `step`."""
        group = self._snapshot.trainer.group
        if self._writing:
            wait([self._writing])
        group.meet("saving")
        try:
            self.look()
        finally:
            self.step = group.from_first(self.step)

    def close(self) -> None:
        """Let what is being written come to its end, whatever it may be that ends the run."""
        self._writer.shutdown()

    def best_steps(self) -> set[int]:
        """The `keep_best` steps with the best scores, among those that are saved or being saved and the
        present one."""
        there = {*checkpoints(self._run), self.begun, self._position.step}
        return self._best_among(there, self._position.scores)

    def _best_among(self, there: Collection[int], scores: Mapping[str, float]) -> set[int]:
        # Of equal scores the older step, which then comes first.
        ranked = sorted((-score, int(step)) for step, score in scores.items() if int(step) in there)
        return {step for _, step in ranked[: self._config.keep_best]}

    def _write(self, checkpoint: Checkpoint, scores: Mapping[str, float]) -> Path:
        """In a thread of its own: nothing here may change while training goes on."""
        folder = save_checkpoint(self._run, self._snapshot.identity, checkpoint)
        self._tidy(scores)
        return folder

    def _tidy(self, scores: Mapping[str, float]) -> None:
        """Point the link `best` at the best checkpoint, and remove those that are neither among the best nor
        newest."""
        there = checkpoints(self._run)
        best = self._best_among(there, scores)
        if best:
            top = max(best, key=lambda step: scores[str(step)])
            point(self._run, BEST, there[top])
        keep_only(self._run, {*list(there)[-self._config.keep_last :], *best})
