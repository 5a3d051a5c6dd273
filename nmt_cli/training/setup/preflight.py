"""Tries everything that a run does once before its first step, so that a run that cannot succeed fails early.

The preflight leaves no trace: no weight changes, no file stays, and each step seeds its own random numbers.
"""

import shutil
import time

from nmt_cli.checkpoints.run_folder import try_saving
from nmt_cli.data.batching.loader import Cut
from nmt_cli.engine.packing import KERNELS
from nmt_cli.errors import UserError
from nmt_cli.runtime.devices import is_gpu
from nmt_cli.runtime.kernels.compiling import prepare
from nmt_cli.runtime.kernels.families import refused
from nmt_cli.training.progress import Position, interval_in_words, left
from nmt_cli.training.setup.precision import precision_in_words
from nmt_cli.training.setup.run import TrainingRun
from nmt_cli.training.setup.trial import (
    LongestBatch,
    compiled,
    fault_of_compiling,
    first_cut,
    is_searched,
    try_longest,
)
from nmt_cli.training.step.schedule import long_warmup
from nmt_cli.training.tracking.events import Note, Warned
from nmt_cli.training.tracking.saver import Snapshot
from nmt_cli.training.validation.validator import Validator
from nmt_cli.units import duration, size

SENTENCES = 8
"""Number of sentences of each validation set that are translated, the longest ones."""


def tried_cut(run: TrainingRun, snapshot: Snapshot, validator: Validator) -> Cut:
    """Return how this rank cuts its batches into micro-batches that fit its memory. All ranks call this.

    A new run tries the longest batch, a validation and a checkpoint. A resumed run tries only the longest
    batch, and only if the number of tokens that fit has to be searched, or if the model is compiled. Raise
    `UserError` if a trial fails.
    """
    cut, begins = first_cut(run.config, run.device, run.process), not snapshot.resumed
    compiles = compiled(run.config, run.device)
    # A resumed run has shown that its batches fit, unless their size has to be searched.
    needed = begins or is_searched(run.config, run.device) or compiles
    if not any(run.group.gather(needed)):  # the limit of tokens may differ between ranks
        return cut
    run.group.busy("compiling" if compiles else "trying out")
    if not is_gpu(run.device):
        losses = (
            ("loss.cpu_row_losses", "loss.cpu_r_drop") if run.config.loss.r_drop else ("loss.cpu_row_losses",)
        )
        # Here, with all cores and a report. In the first step, one thread would compile in silence.
        prepare("model.pointwise.cpu_dropout", *losses, *([KERNELS] if validator.enabled else ()))
    if compiles and (problem := _shared_fault(run, snapshot, cut)):
        refused.add("torch.compile")  # until the end of the run, see `chosen_kernels`
        snapshot.trainer.stop_compiling()
        cut = first_cut(run.config, run.device, run.process)
        run.report(Warned(f"torch.compile is not used, which makes training slower: {problem}"))
    trial = try_longest(snapshot.trainer, run.train_set, cut, run.report)
    run.group.meet("waiting")  # a rank without cached kernels may compile for minutes longer than the others
    if begins:
        preflight(run, snapshot, validator, trial)
        run.group.meet("trying out")  # the first rank saves a checkpoint meanwhile
    return trial.cut


def _shared_fault(run: TrainingRun, snapshot: Snapshot, cut: Cut) -> str:
    """Return a fault of the compiled model on any rank, or "" if there is none. All ranks call this."""
    own = fault_of_compiling(snapshot.trainer, run.train_set, cut)
    run.group.meet("compiling")  # a rank without cached kernels compiles for minutes longer than the others
    return next(filter(None, run.group.gather(own)), "")


def preflight(run: TrainingRun, snapshot: Snapshot, validator: Validator, trial: LongestBatch) -> None:
    """Try a validation on a few sentences, if enabled, and a checkpoint, which is removed.

    Report the time and memory of the longest batch (`trial`), of a checkpoint and of the run. Warn of a
    warm-up that is too long for the run. All ranks call this, but only the first writes and reports. Raise
    `UserError` if the disk is too small for all checkpoints.
    """
    start = time.perf_counter()
    if validator.enabled:
        validator.try_out(SENTENCES)
    if not run.process.first:
        return
    config, checkpoints = run.config, _checkpoints_fit(run, snapshot)
    tried = time.perf_counter() - start + trial.total_seconds
    steps, seconds = estimate(run, trial, snapshot.position)
    validation = f", plus validation {interval_in_words(config.validation)}" if validator.enabled else ""
    whole_run = f"{steps:,} steps take about {duration(seconds)} at this speed{validation}"
    products = f"products in {precision_in_words(config.training.precision, run.precision)}"
    if problem := long_warmup(config, snapshot.position.step + steps):
        run.report(Warned(problem))
    run.report(Note(f"preflight ({duration(tried)}): {trial}; {products}"))
    run.report(Note(f"preflight: {checkpoints}"))
    run.report(Note(f"preflight: {whole_run}"))


def _checkpoints_fit(run: TrainingRun, snapshot: Snapshot) -> str:
    """Write a checkpoint, and remove it. Return a text with its cost. Raise `UserError` if the disk is too
    small for as many checkpoints as the run keeps."""
    start = time.perf_counter()
    written = try_saving(run.folder, snapshot.identity, snapshot.checkpoint())
    seconds = time.perf_counter() - start
    count, free = checkpoints_at_most(run), shutil.disk_usage(run.folder).free
    if count * written > free:
        raise UserError(
            f"{run.folder} will hold {count} checkpoints of {size(written)}, {size(count * written)} in "
            f"total, but only {size(free)} are free. Free some space, or lower checkpoints.keep_last."
        )
    interval = interval_in_words(run.config.checkpoints)
    cost = f"a checkpoint {interval} takes {size(written)} and {duration(seconds)}"
    return f"{cost}, {count} of them {size(count * written)} of {size(free)} free"


def estimate(
    run: TrainingRun, trial: LongestBatch, position: Position, epoch_steps: int = 0
) -> tuple[int, float]:
    """Return the estimated steps and seconds of the run from `position` on, without validation.

    trial: the longest batch, whose speed is that of the whole run.
    epoch_steps: the number of steps in an epoch. If it is 0, it is estimated from the pairs.
    """
    config, split = run.config, run.train_set
    source, target = (int(side.offsets[-1]) for side in (split.source, split.target))
    longer = max(source, target)
    # A batch is full when its longer side is.
    tokens = config.loss.draws * min(config.batch.tokens, longer) * (source + target) / longer
    pace = trial.seconds / trial.tokens * tokens / trial.cut.world
    mean_steps = longer * run.plan.pairs_of_epoch / len(split) / config.batch.tokens
    return left(config.training, pace, position, epoch_steps or mean_steps, position.seconds)


def checkpoints_at_most(run: TrainingRun) -> int:
    """Return the maximum number of checkpoints on disk at a time: the newest ones, the best ones, and one
    more that is being written."""
    keep = run.config.checkpoints
    # A short run saves fewer than it may keep.
    saves = -(-run.config.training.max_steps // keep.every_steps) if keep.every_steps else keep.keep_last
    return min(keep.keep_last, saves) + keep.keep_best + 1
