"""The checkpoints of a run: what goes into one, when one was written, and which of them stay."""

import time
from dataclasses import asdict, dataclass
from pathlib import Path

from nmt_cli.checkpoints.model_folder import Identity, weights
from nmt_cli.checkpoints.run_folder import BEST, Checkpoint, checkpoints, keep_only, point, save_checkpoint
from nmt_cli.training.clock import Clock
from nmt_cli.training.config import CheckpointConfig
from nmt_cli.training.position import Position
from nmt_cli.training.record.events import Doing, Report, Saved
from nmt_cli.training.step.ema import Ema
from nmt_cli.training.step.optimizer import optimizer_tensors
from nmt_cli.training.step.trainer import Trainer


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The live parts of a run that a checkpoint is made of."""

    identity: Identity
    trainer: Trainer
    ema: Ema | None
    position: Position
    dataset: Path

    def checkpoint(self) -> Checkpoint:
        """A checkpoint of them as they are now; its tensors are the live ones, to be written before the next
        step."""
        trainer = self.trainer
        tensors = optimizer_tensors(trainer.model, trainer.optimizer) | trainer.scale.tensors()
        progress = {**asdict(self.position), "world": trainer.group.process.world}
        progress["dataset"] = str(self.dataset.resolve())
        ema = self.ema.tensors if self.ema else {}
        return Checkpoint(self.position.step, weights(trainer.model), tensors, progress, ema)


class Saver:
    """Writes checkpoints into a run folder, and removes those that need not stay."""

    def __init__(
        self, run: Path, snapshot: Snapshot, config: CheckpointConfig, clock: Clock, report: Report
    ) -> None:
        self._run, self._snapshot, self._config = run, snapshot, config
        self._clock, self._report = clock, report
        self._position = snapshot.position
        self._began = time.perf_counter()
        self.step = self._position.step
        """The step of the newest checkpoint that was written."""

    @property
    def age(self) -> float:
        """Seconds since the newest checkpoint was written, or since the last attempt failed."""
        return time.perf_counter() - self._began

    def save(self) -> None:
        """Write a checkpoint, on the first rank only, and remove old ones; `UserError` or `OSError` if it
        fails.

        All ranks call it.
        """
        # Set first: if saving fails, the next attempt is minutes away, not a step.
        self._began = time.perf_counter()
        self._report(Doing("saving", self._position.step, self._position.epoch))
        # Before the snapshot, which keeps the time that the run has taken.
        self._clock.note()
        if self._snapshot.trainer.group.process.first:
            folder = save_checkpoint(self._run, self._snapshot.identity, self._snapshot.checkpoint())
            self._tidy()
            self._report(Saved(self._position.step, folder))
        self.step = self._position.step

    def best_steps(self) -> set[int]:
        """The `keep_best` steps with the best scores, among those that are saved and the present one."""
        there = {*checkpoints(self._run), self._position.step}
        scores = self._position.scores.items()
        # Of equal scores the older step, which then comes first.
        ranked = sorted((-score, int(step)) for step, score in scores if int(step) in there)
        return {step for _, step in ranked[: self._config.keep_best]}

    def _tidy(self) -> None:
        """Point the link `best` at the best checkpoint, and remove those that are neither among the best nor
        newest."""
        there, best = checkpoints(self._run), self.best_steps()
        if best:
            top = max(best, key=lambda step: self._position.scores[str(step)])
            point(self._run, BEST, there[top])
        keep_only(self._run, {*list(there)[-self._config.keep_last :], *best})
