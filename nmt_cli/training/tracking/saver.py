"""Writes the checkpoints of a run in the background, and removes those that are no longer needed."""

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
from nmt_cli.training.progress import Clock, Position
from nmt_cli.training.step.ema import Ema
from nmt_cli.training.step.trainer import Trainer
from nmt_cli.training.tracking.events import Doing, Report, Saved


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The live parts of a run that a checkpoint stores. Each step changes the live parts."""

    identity: Identity
    trainer: Trainer
    ema: Ema | None
    position: Position
    dataset: Path
    resumed: bool
    """Whether the run continues from a checkpoint of its own."""

    def checkpoint(self) -> Checkpoint:
        """Return a checkpoint of the current state, equal on all ranks. The tensors are live, so they must be
        written or copied before the next step."""
        trainer = self.trainer
        tensors = trainer.optimizer.tensors() | trainer.scale.tensors()
        progress = {**asdict(self.position), "world": trainer.group.process.world}
        progress["dataset"] = str(self.dataset.resolve())
        # A checkpoint has a checksum. From environment.jsonl, a damaged line could change the precision of a
        # run.
        progress |= {"device": trainer.precision.device.type, "precision": trainer.precision.name}
        ema = self.ema.tensors if self.ema else {}
        return Checkpoint(self.position.step, weights(trainer.model), tensors, progress, ema)


class Moved(UserError):
    """The run folder is no longer at its path, so the run cannot save. The run ends with this error."""


class Saver:
    """Writes checkpoints on the first rank, one at a time in another thread, and removes old ones."""

    def __init__(self, run: Path, snapshot: Snapshot, clock: Clock, report: Report) -> None:
        """Prepare to save in the folder `run`, which exists. `clock` stores the duration in the position."""
        self._run, self._snapshot, self._config = run, snapshot, snapshot.trainer.config.checkpoints
        self._clock, self._report = clock, report
        self._position = snapshot.position
        self._began = time.perf_counter()
        self._folder = run.stat() if snapshot.trainer.group.process.first else None
        self._writer = ThreadPoolExecutor(1, "saver")
        self._writing: Future[Path] | None = None
        self.begun = self.step = self._position.step if snapshot.resumed else 0
        """The step of the checkpoint that was started last, and of the newest checkpoint on disk."""

    @property
    def age(self) -> float:
        """Seconds since the last attempt to save began."""
        return time.perf_counter() - self._began

    def save(self) -> None:
        """Start to write a copy of the current state on the first rank, without waiting. All ranks call this,
        after `wait`. Raise `Moved` on the first rank if its run folder was moved, removed or replaced."""
        # The locked folder stays open, so no other folder can get its inode number.
        if self._folder and not (self._run.is_dir() and samestat(self._folder, self._run.stat())):
            raise Moved(
                f"{self._run} was moved, removed or replaced, so step {self._position.step:,} is not saved. "
                f"Move it back, or give its new path as --out, to resume from step {self.step:,}."
            )
        # Set first, so that after a failure the next attempt is minutes away, not one step.
        self._began = time.perf_counter()
        self._report(Doing("saving", self._position.step, self._position.epoch))
        # Before the snapshot, which contains the duration of the run.
        self._clock.note()
        self.begun = self._position.step
        if self._snapshot.trainer.group.process.first:
            # The loop waits for the copy only, of a base model 0.6 to 0.9 s instead of 1.8 to 3.2 s for
            # writing. On the disk of a network, writing takes minutes.
            checkpoint, scores = self._snapshot.checkpoint().copied(), dict(self._position.scores)
            self._writing = self._writer.submit(self._write, checkpoint, scores)

    def look(self) -> None:
        """Report a checkpoint written since the last call, or raise the error of writing. Do not wait."""
        if self._writing and self._writing.done():
            future, self._writing = self._writing, None
            folder = future.result()
            self.step = self.begun
            self._report(Saved(self.step, folder))

    def wait(self) -> None:
        """Wait until the current checkpoint is on disk. Then report the checkpoint or raise the error as
        `look` does. All ranks call this, and get the `step` of the first rank."""
        group = self._snapshot.trainer.group
        if self._writing:
            wait([self._writing])
        group.meet("saving")
        try:
            self.look()
        finally:
            # After an error too, because the other ranks take part in this call.
            self.step = group.from_first(self.step)

    def close(self) -> None:
        """Wait until the current checkpoint is written, but do not report the checkpoint."""
        self._writer.shutdown()

    def best_steps(self) -> set[int]:
        """Return up to checkpoints.keep_best best steps of those that are saved, being saved, or current."""
        steps = {*checkpoints(self._run), self.begun, self._position.step}
        return self._best_among(steps, self._position.scores)

    def _best_among(self, steps: Collection[int], scores: Mapping[str, float]) -> set[int]:
        """Return up to checkpoints.keep_best of `steps`, those with the largest scores. The newer of two
        equal ones wins, since the first validations of a run may all have BLEU 0."""
        ranked = sorted((scores[str(step)], step) for step in steps if str(step) in scores)
        return {step for _, step in ranked[::-1][: self._config.keep_best]}

    def _write(self, checkpoint: Checkpoint, scores: Mapping[str, float]) -> Path:
        """Write `checkpoint`, point the link `best` to the best one, and remove all but the best and the
        newest. Return the new folder. This runs in another thread, so the arguments must not change."""
        saved = save_checkpoint(self._run, self._snapshot.identity, checkpoint)
        folders = checkpoints(self._run)
        best = self._best_among(folders, scores)
        if best:
            top = max(best, key=lambda step: (scores[str(step)], step))
            point(self._run, BEST, folders[top])
        keep_only(self._run, {*list(folders)[-self._config.keep_last :], *best})
        return saved
