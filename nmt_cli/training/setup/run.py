"""A training run from its folder and a dataset: every part is made ready here, and the loop started."""

import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import torch

from nmt_cli.checkpoints.run_folder import set_copies_aside
from nmt_cli.data.batching.loader import Loader
from nmt_cli.data.batching.mixed_plan import mixed_plan
from nmt_cli.data.batching.resegment import refuse_no_effect, samplers
from nmt_cli.data.dataset import TOKENIZERS, TRAIN, Dataset, open_dataset
from nmt_cli.data.guard import DatasetGuard
from nmt_cli.errors import UserError
from nmt_cli.runtime.devices import fast_products
from nmt_cli.runtime.threads import default_threads, kept_threads
from nmt_cli.text.tokenizers import load_tokenizers
from nmt_cli.training.clock import Clock
from nmt_cli.training.config import TrainConfig
from nmt_cli.training.limits import Limits
from nmt_cli.training.loop import Loop
from nmt_cli.training.position import Position
from nmt_cli.training.settings import keep_settings
from nmt_cli.training.setup.agreement import refuse_other_checkpoints, refuse_other_orders
from nmt_cli.training.setup.build import build_loader, build_trainer, cut_for, identity_of
from nmt_cli.training.setup.deterministic import repeatable
from nmt_cli.training.setup.folder import claimed, newest_checkpoint
from nmt_cli.training.setup.preflight import preflight
from nmt_cli.training.setup.resume import moving_average, restore
from nmt_cli.training.step.distributed import Group, LostContact, Process, joined, threads_each
from nmt_cli.training.tracking.environment import environment, keep_environment
from nmt_cli.training.tracking.events import Note, Report, Warned, to_each
from nmt_cli.training.tracking.history import History, read_history
from nmt_cli.training.tracking.left_out import LeftOut
from nmt_cli.training.tracking.log import LOG, Log, cut_behind
from nmt_cli.training.tracking.recorder import Recorder
from nmt_cli.training.tracking.reports.html_report import html_report
from nmt_cli.training.tracking.saver import Saver, Snapshot
from nmt_cli.training.tracking.tensorboard import FOLDER, Scalars, require_tensorboard
from nmt_cli.training.tracking.weights_and_biases import Follower, require_wandb
from nmt_cli.training.validation.metrics import Judge, translating
from nmt_cli.training.validation.stopping import refuse_unwatchable
from nmt_cli.training.validation.validator import Validator


def train(
    dataset_folder: Path,
    run: Path,
    config: TrainConfig,
    process: Process,
    device: torch.device,
    report: Report,
    stop_wanted: Callable[[], bool],
    command: Sequence[str] = (),
    threads: int = 0,
) -> bool:
    """Train until the end of the run; False if `stop_wanted` ended it before. The same call again goes on.
    The run folder keeps the `command`. A machine's processes share so many `threads`, or the default (0)."""
    dataset = open_dataset(dataset_folder)
    refuse_unfit(dataset, config)
    with ExitStack() as stack:
        group = _prepared(dataset, config, process, device, threads, stack)
        verifies = process.local_rank == 0
        guard = DatasetGuard(dataset, group.gather, lambda text: report(Note(text)), verifies=verifies)
        stack.enter_context(guard)
        if process.first:
            stack.enter_context(claimed(run))
        newest = group.from_first(newest_checkpoint(run) if process.first else None)
        identity = identity_of(dataset, config)
        trainer = build_trainer(identity, config, group, device, report, fresh=not newest)
        refuse_other_checkpoints(group, newest)
        position = restore(run, newest, trainer, identity, report) if newest else Position()
        # Each rank has drawn or read its weights by itself; from here on they have the same bits.
        group.share_first(trainer.model.parameters())
        ema = moving_average(trainer, newest)
        snapshot = Snapshot(identity, trainer, ema, position, dataset.folder)
        log, history, report = _opened(run, dataset, snapshot, report, stack)
        if process.first:
            keep_environment(run, position.step, environment(command, device, process), report)
        cut = cut_for(config, trainer, process)
        loader = build_loader(dataset, guard, config, cut, group, position, stack)
        validator = _validator(dataset, snapshot, report)
        try:
            if not position.step:  # a resumed run has shown that it fits and can be saved
                preflight(run, snapshot, validator, dataset.splits[TRAIN], cut, report)
                group.meet("trying out")  # the first rank saves a checkpoint there
            parts = run, snapshot, loader, validator, log, history, guard, report, stop_wanted
            return _loop(*parts).train()
        # This rank only heard that another one failed, and that one says why.
        except LostContact:
            raise
        except Exception:
            guard.check_contents()  # what is wrong with the dataset explains more than what came of it
            raise


def _prepared(
    dataset: Dataset,
    config: TrainConfig,
    process: Process,
    device: torch.device,
    threads: int,
    stack: ExitStack,
) -> Group:
    """The group of processes that are to do the same, this one with its threads and the kernels wanted."""
    stack.enter_context(kept_threads())
    torch.set_num_threads(threads_each(threads or default_threads(process.local_world), process))
    stack.enter_context(fast_products(device))
    stack.enter_context(repeatable(config, device))
    group = stack.enter_context(joined(process, device, config.training.rank_timeout))
    refuse_other_orders(group, dataset, config)
    return group


def _opened(
    run: Path, dataset: Dataset, snapshot: Snapshot, report: Report, stack: ExitStack
) -> tuple[Log, History, Report]:
    """The log, ending where the run stands, what it says so far, and a report to all who read of the run.

    On all ranks but the first nothing is written, and nobody reads but `report` itself.
    """
    trainer, position = snapshot.trainer, snapshot.position
    if not trainer.group.process.first:
        return stack.enter_context(Log(None)), History(), report
    if lost := cut_behind(run / LOG, position):
        report(Warned(lost))
    keep_settings(run, trainer.config)
    for place, now in set_copies_aside(run).items():
        told = "the run was copied without its links; remove that folder when you like"
        report(
            Warned(f"{place} is a folder, and not a link to a checkpoint: it is {now.name} now, for {told}")
        )
    history = read_history(run / LOG)
    page = html_report(run, dataset, snapshot.identity, trainer, history, report)
    readers: list[Report] = [report, page]
    if trainer.config.training.tensorboard:
        scalars = Scalars(run / FOLDER, position.step, report)
        stack.callback(scalars.close)
        readers.append(scalars)
    if trainer.config.training.wandb:
        follower = Follower(run, trainer.config, os.environ, report)
        stack.callback(follower.close)
        readers.append(follower)
    return stack.enter_context(Log(run / LOG)), history, to_each(readers)


def _validator(dataset: Dataset, snapshot: Snapshot, report: Report) -> Validator:
    """What judges the model; tells where BLEU is not what one would expect."""
    trainer, tokenizers = snapshot.trainer, snapshot.identity.tokenizers
    settings = trainer.config.validation, translating(trainer.config)
    judge = Judge(dataset, tokenizers, *settings, trainer.group, trainer.precision)
    validator = Validator(trainer.config, judge, trainer.model, snapshot.ema, snapshot.position)
    if validator.wanted and (told := judge.in_characters):
        report(Warned(told))
    return validator


def _loop(
    run: Path,
    snapshot: Snapshot,
    loader: Loader,
    validator: Validator,
    log: Log,
    history: History,
    guard: DatasetGuard,
    report: Report,
    stop_wanted: Callable[[], bool],
) -> Loop:
    """The loop over what was made ready; its clock begins now."""
    trainer, position = snapshot.trainer, snapshot.position
    config, group = trainer.config, trainer.group
    clock = Clock(position, config.training, group.process.world)
    vocabulary = len(snapshot.identity.tokenizers.target.vocabulary)
    return Loop(
        position=position,
        trainer=trainer,
        loader=loader,
        limits=Limits(config, position, clock, stop_wanted),
        validator=validator,
        saver=Saver(run, snapshot, config.checkpoints, clock, report),
        recorder=Recorder(config, position, clock, log, history, group.device, vocabulary, report),
        left_out=LeftOut(config, report),
        dataset=guard,
        report=report,
    )


def refuse_unfit(dataset: Dataset, config: TrainConfig) -> None:
    """Say before anything is begun what of the settings can't be had, or not with this dataset."""
    _refuse_long(dataset, config)
    mixed_plan(dataset, config.batch, config.mixing, config.training.seed)
    refuse_unwatchable(config, dataset)
    if config.sampling.wanted or config.augment.wanted:
        tokenizers = load_tokenizers(dataset.folder / TOKENIZERS)
        samplers(tokenizers, config.sampling)
        refuse_no_effect(tokenizers, config.augment)
    if config.training.tensorboard:
        require_tensorboard()
    if config.training.wandb:
        require_wandb()


def _refuse_long(dataset: Dataset, config: TrainConfig) -> None:
    """Say that a validation set does not fit learned positions."""
    for split in dataset.splits.values():
        longest = max(int(np.diff(side.offsets).max(initial=0)) for side in (split.source, split.target))
        if config.model.positions == "learned" and split.role == "valid" and longest > config.model.longest:
            raise UserError(
                f"{split.name} has a sentence of {longest} tokens, but model.longest has only "
                f"{config.model.longest} positions; raise it."
            )
