"""Sets up a training run from its folder and a dataset, and starts the loop."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from importlib import import_module
from pathlib import Path

import numpy as np
import torch

from nmt_cli.checkpoints.run_folder import set_copies_aside
from nmt_cli.data.batching.loader import Cut, Loader
from nmt_cli.data.batching.planner import plan_of
from nmt_cli.data.batching.resegment import refuse_no_effect, samplers
from nmt_cli.data.dataset import TOKENIZERS, TRAIN, Dataset, open_dataset
from nmt_cli.data.guard import DatasetGuard
from nmt_cli.engine.packing import KERNELS
from nmt_cli.errors import UserError
from nmt_cli.runtime.devices import fast_products, is_gpu
from nmt_cli.runtime.foreign_text import read_if_exists
from nmt_cli.runtime.kernels.compiling import prepare
from nmt_cli.runtime.threads import default_threads, restored_threads
from nmt_cli.text.tokenizers import load_tokenizers
from nmt_cli.training.config import TrainConfig
from nmt_cli.training.loop import Loop
from nmt_cli.training.progress import Clock, Limits, Position
from nmt_cli.training.settings import keep_settings
from nmt_cli.training.setup.agreement import refuse_other_checkpoints, refuse_other_orders
from nmt_cli.training.setup.build import (
    build_loader,
    build_trainer,
    chosen_kernels,
    identity_of,
    warn_if_slow,
)
from nmt_cli.training.setup.deterministic import repeatable
from nmt_cli.training.setup.preflight import preflight
from nmt_cli.training.setup.resume import (
    checkpoint_to_take,
    claimed,
    moving_average,
    newest_checkpoint,
    precision_of,
    refuse_other_scores,
    restore,
    same_bleu,
    take,
)
from nmt_cli.training.setup.trial import compiled, first_cut, is_searched, try_longest
from nmt_cli.training.step.distributed import Group, LostContact, Process
from nmt_cli.training.step.trainer import MixedPrecision
from nmt_cli.training.tracking.environment import ENVIRONMENT, environment, keep_environment
from nmt_cli.training.tracking.events import Event, Note, Report, Warned
from nmt_cli.training.tracking.history import History
from nmt_cli.training.tracking.html_report import html_report
from nmt_cli.training.tracking.log import LOG, Log, cut_behind
from nmt_cli.training.tracking.recorder import Recorder
from nmt_cli.training.tracking.saver import Saver, Snapshot
from nmt_cli.training.tracking.trackers import TENSORBOARD, Follower, Scalars
from nmt_cli.training.validation.metrics import Judge, load_comet, translating
from nmt_cli.training.validation.validator import Validator

PATIENCE_FOR_REASON = 10.0
"""Seconds that an error waits for the verification of the dataset, which may have found its cause."""


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
    """Train from the newest checkpoint, if any, to the end of the run. Return False if `stop_wanted` ended
    the run earlier. Store `command` in the run folder. Processes of a machine share `threads`, 0 for the
    default. Raise `UserError` if settings, dataset, run folder, memory or disk do not allow the run."""
    dataset, precision = open_dataset(dataset_folder), precision_of(run, config, device)
    refuse_unfit(dataset, config)
    with ExitStack() as stack:
        stack.enter_context(restored_threads())
        all_threads = threads or default_threads(process.local_world)
        torch.set_num_threads(max(1, all_threads // process.local_world))
        stack.enter_context(fast_products(device))
        stack.enter_context(repeatable(config, device))
        group = stack.enter_context(closing(Group(process, device, config.training.rank_timeout)))
        refuse_other_orders(group, dataset, config, precision)
        comet = load_comet(config.validation) if process.first else None
        verifies = process.local_rank == 0
        guard = DatasetGuard(dataset, group.gather, lambda text: report(Note(text)), verifies=verifies)
        stack.enter_context(guard)
        snapshot = _restored(run, dataset, config, precision, group, report, stack)
        log, history, report = _opened(run, dataset, snapshot, report, stack)
        tokenizers = snapshot.identity.tokenizers
        if process.first:
            facts = environment(command, device, precision.name, process)
            if snapshot.resumed and not read_if_exists(run / ENVIRONMENT):
                lost = f"the commands and versions up to step {snapshot.position.step:,} are lost"
                report(Warned(f"{run / ENVIRONMENT} is missing or empty, so {lost}. It is written again."))
            keep_environment(run, snapshot.position.step, facts)
        validation = group.from_first(same_bleu(config.validation, history))
        judge = Judge(dataset, tokenizers, validation, translating(config), group, precision, comet)
        validator = Validator(config, judge, snapshot.trainer.model, snapshot.ema, snapshot.position)
        refuse_other_scores(run, snapshot.position, history, judge)
        if validator.enabled and (reason := judge.in_characters):
            report(Warned(reason))
        try:
            cut = _tried_cut(run, dataset, snapshot, validator, report)
            loader = build_loader(dataset, guard, config, cut, group, snapshot.position, report, stack)
            return _loop(run, snapshot, loader, validator, log, history, guard, report, stop_wanted).train()
        except LostContact:
            raise  # the rank that failed reports the cause
        except Exception as error:
            # A fault of the dataset is a better explanation than its consequences.
            guard.check_contents(PATIENCE_FOR_REASON if isinstance(error, UserError) else None)
            raise


def _restored(
    run: Path,
    dataset: Dataset,
    config: TrainConfig,
    precision: MixedPrecision,
    group: Group,
    report: Report,
    stack: ExitStack,
) -> Snapshot:
    """Return the live parts of the run, equal on all ranks. Restore its newest checkpoint, if any, or else
    what start.take names. The first rank locks the folder until `stack` closes. Raise `UserError` if folder
    or checkpoint do not fit."""
    if group.process.first:
        stack.enter_context(claimed(run))
    newest = group.from_first(newest_checkpoint(run) if group.process.first else None)
    to_take = None if newest else checkpoint_to_take(config.start)
    identity = identity_of(dataset, config)
    warn_if_slow(config, group.device, report, group.process.local_world)
    stack.enter_context(chosen_kernels(identity, config, precision, group, report))
    trainer = build_trainer(identity, config, precision, group, report, fresh=not newest)
    folder = "--init-from" if to_take else "run"
    refuse_other_checkpoints(group, newest or to_take, f"Let all of them see the same {folder} folder.")
    if newest:
        position = restore(run, newest, trainer, identity, report)
    else:
        position = take(to_take, trainer, identity) if to_take else Position()
    ema = moving_average(trainer, newest or (to_take if "optimizer" in config.start.take else None))
    return Snapshot(identity, trainer, ema, position, dataset.folder, resumed=bool(newest))


def _opened(
    run: Path, dataset: Dataset, snapshot: Snapshot, report: Report, stack: ExitStack
) -> tuple[Log, History, Report]:
    """Return the log, its history, and a function that passes events to all readers. Readers are `report`,
    the HTML report, and TensorBoard and W&B if set. Cut the log, store settings, and rename folders in place
    of links, with warnings. On later ranks, write nothing, and return `report` itself."""
    trainer, position = snapshot.trainer, snapshot.position
    if not trainer.group.process.first:
        return Log(None), History(), report
    history, warning = cut_behind(run / LOG, position)
    if warning:
        report(Warned(warning))
    keep_settings(run, trainer.config)
    for copy, renamed in set_copies_aside(run).items():
        problem = f"{copy} is a folder instead of a link to a checkpoint, so the run was copied without links"
        report(Warned(f"{problem}. The folder is now {renamed.name}, and you can remove it."))
    readers: list[Report] = [report, html_report(run, dataset, snapshot.identity, trainer, history, report)]
    if trainer.config.training.tensorboard:
        scalars = Scalars(run / TENSORBOARD, position.step, report)
        stack.callback(scalars.close)
        readers.append(scalars)
    if trainer.config.training.wandb:
        follower = Follower(run, trainer.config, report)
        stack.callback(follower.close)
        readers.append(follower)
    log = Log(run / LOG)
    stack.callback(log.close)

    def to_each(event: Event) -> None:
        for reader in readers:
            reader(event)

    return log, history, to_each


def _tried_cut(run: Path, dataset: Dataset, snapshot: Snapshot, validator: Validator, report: Report) -> Cut:
    """Return how to cut batches. A new run tries the longest batch, a validation and a checkpoint. A resumed
    run tries the longest batch to find how many tokens fit, or to compile. Wait for all ranks. Raise
    `UserError` if a trial fails."""
    trainer, split = snapshot.trainer, dataset.splits[TRAIN]
    config, device, group = trainer.config, trainer.precision.device, trainer.group
    cut, begins = first_cut(config, device, group.process), not snapshot.resumed
    compiles = compiled(config, device)
    # A resumed run has shown that its batches fit, unless their size has to be searched.
    needed = begins or is_searched(config, device) or compiles
    if not any(group.gather(needed)):  # the limit of tokens may differ between ranks
        return cut
    group.busy("compiling" if compiles else "trying out")
    if not is_gpu(device):
        losses = (
            ("loss.cpu_row_losses", "loss.cpu_r_drop") if config.loss.r_drop else ("loss.cpu_row_losses",)
        )
        prepare("model.pointwise.cpu_dropout", *losses, *([KERNELS] if validator.enabled else ()))
    trial = try_longest(trainer, split, cut, report)
    group.meet("waiting")  # a rank without cached kernels may compile for minutes longer than the others
    if begins:
        pairs = len(split)
        if config.training.max_epochs:  # only then does the length of an epoch matter
            pairs = plan_of(dataset, config.batch, config.mixing, config.training.seed).pairs_of_epoch
        preflight(run, snapshot, validator, split, trial, pairs, report)
        group.meet("trying out")  # the first rank saves a checkpoint meanwhile
    return trial.cut


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
    """Return the training loop at the position of `snapshot`, with its parts. Its clock starts now."""
    trainer, position = snapshot.trainer, snapshot.position
    config, group = trainer.config, trainer.group
    clock = Clock(position, config.training, group.process.world)
    vocabulary = len(snapshot.identity.tokenizers.target.vocabulary)
    return Loop(
        position=position,
        trainer=trainer,
        loader=loader,
        limits=Limits(config, position, clock, stop_wanted, late=group.process.world > 1),
        validator=validator,
        saver=Saver(run, snapshot, config.checkpoints, clock, report),
        recorder=Recorder(config, position, clock, log, history, group.device, vocabulary, report),
        dataset=guard,
        report=report,
        resumed=snapshot.resumed,
    )


def refuse_unfit(dataset: Dataset, config: TrainConfig) -> None:
    """Raise `UserError` if positions, mixture, early stopping, sampling or augmentation do not fit the
    dataset. Raise `UserError` too if a library for TensorBoard or W&B is missing."""
    for split in dataset.valid_sets:
        longest = max(int(np.diff(side.offsets).max(initial=0)) for side in (split.source, split.target))
        if config.model.positions == "learned" and longest > config.model.longest:
            raise UserError(
                f"{split.name} has a sentence of {longest} tokens, but model.longest has only "
                f"{config.model.longest} positions. Raise it."
            )
    if config.watches and not dataset.valid_sets:
        raise UserError(
            f"{dataset.folder} has no validation set, so validation.patience and the plateau schedule have "
            "nothing to watch. Make the dataset with --valid."
        )
    if config.training.guided_alignment and dataset.splits[TRAIN].links is None:
        raise UserError(
            f"{dataset.folder} has no alignments for training.guided_alignment. Make it again with "
            "--set corpus.align=true."
        )
    plan_of(dataset, config.batch, config.mixing, config.training.seed)
    if config.sampling.enabled or config.augment.enabled:
        tokenizers = load_tokenizers(dataset.folder / TOKENIZERS)
        samplers(tokenizers, config.sampling)
        refuse_no_effect(tokenizers, config.augment)
    for module, name in {"tensorboard": "TensorBoard", "wandb": "Weights & Biases' client"}.items():
        try:
            if getattr(config.training, module):
                import_module(module)
        except ImportError as error:
            raise UserError(
                f"training.{module} needs {name}, which is not installed: pip install '.[{module}]', or "
                "leave the setting out."
            ) from error
