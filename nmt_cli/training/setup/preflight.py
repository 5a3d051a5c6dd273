"""Tries everything that a run does once before its first step, so that a run that cannot succeed fails early.

The preflight leaves no trace: no weight changes, no file stays, and each step seeds its own random numbers.
"""

import shutil
import time
from pathlib import Path

from nmt_cli.checkpoints.run_folder import try_saving
from nmt_cli.data.dataset import Split
from nmt_cli.errors import UserError
from nmt_cli.training.config import TrainConfig
from nmt_cli.training.progress import Position, interval_in_words, left
from nmt_cli.training.setup.build import precision_in_words
from nmt_cli.training.setup.trial import Trial
from nmt_cli.training.step.schedule import long_warmup
from nmt_cli.training.tracking.events import Note, Report, Warned
from nmt_cli.training.tracking.saver import Snapshot
from nmt_cli.training.validation.validator import Validator
from nmt_cli.units import duration, size

SENTENCES = 8
"""Number of sentences of each validation set that are translated, the longest ones."""


def preflight(
    run: Path,
    snapshot: Snapshot,
    validator: Validator,
    split: Split,
    trial: Trial,
    pairs: int,
    report: Report,
) -> None:
    """Try a validation on a few sentences, if enabled, and a checkpoint, which is removed. Report a note with
    the cost of the checkpoint, of the longest batch (`trial`), and of the run, whose epochs have `pairs`.
    Warn of a warm-up that is too long for the run. All ranks call this, but only the first writes and
    reports. Raise `UserError` if the disk is too small for all checkpoints."""
    start = time.perf_counter()
    if validator.enabled:
        validator.try_out(SENTENCES)
    if not snapshot.trainer.group.process.first:
        return
    trainer, saving_start = snapshot.trainer, time.perf_counter()
    config = trainer.config
    written = try_saving(run, snapshot.identity, snapshot.checkpoint())
    now = time.perf_counter()
    interval = interval_in_words(config.checkpoints)
    saving = f"a checkpoint {interval} takes {size(written)} and {duration(now - saving_start)}"
    count, free = checkpoints_at_most(config), shutil.disk_usage(run).free
    if count * written > free:
        raise UserError(
            f"{run} will hold {count} checkpoints of {size(written)}, {size(count * written)} in total, but "
            f"only {size(free)} are free. Free some space, or lower checkpoints.keep_last."
        )
    disk = f"{count} of them {size(count * written)} of {size(free)} free"
    steps, seconds = estimate(split, config, trial, snapshot.position, pairs)
    validation = f", plus validation {interval_in_words(config.validation)}" if validator.enabled else ""
    whole_run = f"{steps:,} steps take about {duration(seconds)} at this speed{validation}"
    products = f"products in {precision_in_words(config.training.precision, trainer.precision)}"
    plan = f"{trial}; {saving}, {disk}; {whole_run}; {products}"
    if problem := long_warmup(config, snapshot.position.step + steps):
        report(Warned(problem))
    report(Note(f"preflight ({duration(now - start + trial.total_seconds)}): {plan}"))


def estimate(
    split: Split, config: TrainConfig, trial: Trial, position: Position, pairs: int, epoch_steps: int = 0
) -> tuple[int, float]:
    """Return the estimated steps and seconds of a run on `split` from `position`, at the speed of `trial`.
    Leave out validation. If the number of steps per epoch, `epoch_steps`, is 0, estimate it from the number
    of `pairs` per epoch."""
    source, target = (int(side.offsets[-1]) for side in (split.source, split.target))
    longer = max(source, target)
    # A batch is full when its longer side is.
    tokens = config.loss.draws * min(config.batch.tokens, longer) * (source + target) / longer
    pace = trial.seconds / trial.tokens * tokens / trial.cut.world
    mean_steps = longer * pairs / len(split) / config.batch.tokens
    return left(config.training, pace, position, epoch_steps or mean_steps, position.seconds)


def checkpoints_at_most(config: TrainConfig) -> int:
    """Return the maximum number of checkpoints on disk: the newest, the best, and one being written."""
    steps, keep = config.checkpoints.every_steps, config.checkpoints
    saves = -(-config.training.max_steps // steps) if steps else keep.keep_last
    return min(keep.keep_last, saves) + keep.keep_best + 1
