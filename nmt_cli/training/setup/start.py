"""Starts a training run: checks it, restores its state, tries what it needs, and hands it to the loop."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager

import torch

from nmt_cli.checkpoints.run_folder import set_copies_aside
from nmt_cli.data.guard import DatasetGuard
from nmt_cli.errors import UserError
from nmt_cli.runtime.devices import fast_products
from nmt_cli.runtime.foreign_text import read_if_exists
from nmt_cli.runtime.threads import default_threads, restored_threads
from nmt_cli.training.loop import Loop
from nmt_cli.training.progress import Clock, Limits
from nmt_cli.training.settings import keep_settings
from nmt_cli.training.setup.build import chosen_kernels, loading, warn_if_slow
from nmt_cli.training.setup.checks import ALONE, TOGETHER, check
from nmt_cli.training.setup.deterministic import repeatable
from nmt_cli.training.setup.precision import newest_checkpoint
from nmt_cli.training.setup.preflight import tried_cut
from nmt_cli.training.setup.resume import (
    checkpoint_to_take,
    claimed,
    counted_characters,
    first_state,
    refuse_other_scores,
)
from nmt_cli.training.setup.run import TrainingRun
from nmt_cli.training.step.distributed import LostContact
from nmt_cli.training.tracking.environment import ENVIRONMENT, environment, keep_environment
from nmt_cli.training.tracking.events import Note, Warned
from nmt_cli.training.tracking.history import RunHistory
from nmt_cli.training.tracking.html_report import html_report
from nmt_cli.training.tracking.log import LOG, Log, cut_behind
from nmt_cli.training.tracking.recorder import Recorder
from nmt_cli.training.tracking.saver import Saver, Snapshot
from nmt_cli.training.tracking.trackers import TENSORBOARD, Follower, Scalars
from nmt_cli.training.validation.judge import Judge, translating
from nmt_cli.training.validation.validator import Validator

PATIENCE_FOR_REASON = 10.0
"""Seconds that an error waits for the verification of the dataset, which may have found its cause."""


def start(
    run: TrainingRun, stop_wanted: Callable[[], bool], command: Sequence[str] = (), threads: int = 0
) -> bool:
    """Train from the newest checkpoint, if any, to the end of the run.

    stop_wanted: asked at each step. If it returns true, training saves a checkpoint and ends.
    command: is stored in the run folder.
    threads: for all processes of the run on this machine, 0 for the default.

    Return False if `stop_wanted` ended the run early. Raise `UserError` if settings, dataset, run folder,
    memory or disk do not allow the run.
    """
    # Before the ranks meet, so that each of them reports a wrong setting instead of a lost contact.
    check(run, ALONE)
    with ExitStack() as stack:
        enter = stack.enter_context
        enter(_computing(run, threads))
        enter(closing(run.group))
        check(run, TOGETHER)
        guard = enter(_guarding(run))
        # Locked before the newest checkpoint is looked up: another process could write a newer one.
        if run.process.first:
            enter(claimed(run.folder))
        newest = run.group.from_first(newest_checkpoint(run.folder) if run.process.first else None)
        to_take = None if newest else checkpoint_to_take(run)
        warn_if_slow(run, run.process.local_world)
        # Before the model is built, because kernels that fail decide whether the model is compiled.
        enter(chosen_kernels(run))
        snapshot = first_state(run, newest, to_take)
        position, world = snapshot.position, run.process.world
        # From here on, the folder changes. A checkpoint that does not fit was refused before.
        log = enter(_recording(run, snapshot))
        if run.process.first:
            _record_environment(run, snapshot, command)
        validator = _validator(run, snapshot, log.history)
        enter(_blaming_dataset(guard))
        cut = tried_cut(run, snapshot, validator)
        loader = enter(loading(run, guard, cut, position))
        clock = Clock(position, run.config.training, world)  # starts now
        vocabulary = len(run.tokenizers.target.vocabulary)
        loop = Loop(
            position=position,
            trainer=snapshot.trainer,
            loader=loader,
            limits=Limits(run.config, position, clock, stop_wanted, late=world > 1),
            validator=validator,
            saver=Saver(run.folder, snapshot, clock, run.report),
            recorder=Recorder(run.config, vocabulary, position, clock, log, run.report),
            dataset=guard,
            report=run.report,
            resumed=snapshot.resumed,
        )
        return loop.train()


@contextmanager
def _computing(run: TrainingRun, threads: int) -> Iterator[None]:
    """Set up PyTorch for the block: the threads of this process, fast products on a GPU, and repeatable
    operations if training.deterministic is on. `threads` is the number for all processes on this machine, 0
    for the default."""
    with restored_threads():
        all_threads = threads or default_threads(run.process.local_world)
        torch.set_num_threads(max(1, all_threads // run.process.local_world))
        with fast_products(run.device), repeatable(run):
            yield


def _guarding(run: TrainingRun) -> DatasetGuard:
    """Return the guard of the dataset. One process of each machine verifies the files."""
    verifies = run.process.local_rank == 0
    return DatasetGuard(run.dataset, run.group.gather, lambda text: run.report(Note(text)), verifies=verifies)


@contextmanager
def _blaming_dataset(guard: DatasetGuard) -> Iterator[None]:
    """If the block fails and the dataset has a fault, raise the error of the dataset instead, since the fault
    explains its consequences."""
    try:
        yield
    except LostContact:
        raise  # the rank that failed reports the cause
    except Exception as error:
        guard.check_contents(PATIENCE_FOR_REASON if isinstance(error, UserError) else None)
        raise


@contextmanager
def _recording(run: TrainingRun, snapshot: Snapshot) -> Iterator[Log]:
    """Open the log of the run for the block, and add the readers of the run's events: the HTML report, and
    TensorBoard and W&B if set.

    First repair the run folder: lines after the checkpoint are cut from the log, settings are stored, and
    folders in place of links are renamed. Warn if files were changed since the run wrote them. Ranks
    other than the first yield a log that writes nothing.
    """
    if not run.process.first:
        yield Log(None, RunHistory(), run.report)
        return
    position = snapshot.position
    history, warning = cut_behind(run.folder / LOG, position)
    if warning:
        run.report(Warned(warning))
    keep_settings(run.folder, run.config)
    for copy, renamed in set_copies_aside(run.folder).items():
        problem = f"{copy} is a folder instead of a link to a checkpoint, so the run was copied without links"
        run.report(Warned(f"{problem}. The folder is now {renamed.name}, and you can remove it."))
    run.readers.append(
        html_report(run.folder, run.dataset, snapshot.identity, snapshot.trainer, history, run.report)
    )
    with ExitStack() as stack:
        if run.config.training.tensorboard:
            scalars = Scalars(run.folder / TENSORBOARD, position.step, run.report)
            run.readers.append(stack.enter_context(closing(scalars)))
        if run.config.training.wandb:
            follower = Follower(run.folder, run.config, run.report)
            run.readers.append(stack.enter_context(closing(follower)))
        yield stack.enter_context(closing(Log(run.folder / LOG, history, run.report)))


def _record_environment(run: TrainingRun, snapshot: Snapshot, command: Sequence[str]) -> None:
    """Store the command and the versions in the run folder. Warn if those of a resumed run were lost."""
    step, path = snapshot.position.step, run.folder / ENVIRONMENT
    if snapshot.resumed and not read_if_exists(path):
        lost = f"the commands and versions up to step {step:,} are lost"
        run.report(Warned(f"{path} is missing or empty, so {lost}. It is written again."))
    keep_environment(run.folder, step, environment(command, run.device, run.precision.name, run.process))


def _validator(run: TrainingRun, snapshot: Snapshot, history: RunHistory) -> Validator:
    """Return the validator of the run, and warn if BLEU counts characters.

    Raise `UserError` if its scores could not be compared with those in `history`.
    """
    position = snapshot.position
    judge = Judge(
        run.dataset,
        run.tokenizers,
        run.config.validation,
        translating(run.config),
        run.group,
        run.precision,
        run.comet,
        run.config.batch.max_length,
        # Only the first rank has the history, which is needed for runs of older versions.
        "char" if run.group.from_first(counted_characters(position, history)) else "auto",
    )
    validator = Validator(run.config, judge, snapshot.trainer.model, snapshot.ema, position)
    refuse_other_scores(run.folder, position, history, judge)
    if validator.enabled and (reason := judge.in_characters):
        run.report(Warned(reason))
    return validator
