"""Builds the model, the trainer and the loader of a run."""

import socket
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from pathlib import Path

from torch import Tensor

from nmt_cli.data.batching.loader import Cut, Loader
from nmt_cli.data.batching.resegment import EpochChanges, Resegmented
from nmt_cli.data.batching.schedule import Batches
from nmt_cli.data.guard import DatasetGuard
from nmt_cli.model.kernel_trials import Use
from nmt_cli.model.kernel_verdicts import failures, line
from nmt_cli.runtime.atomic import temporary_folder
from nmt_cli.runtime.devices import is_gpu, translating_precisions
from nmt_cli.runtime.kernels.families import FAMILIES, plain_only, without
from nmt_cli.runtime.kernels.torch_private import compiled_for_all_sizes
from nmt_cli.runtime.locks import is_locked
from nmt_cli.runtime.threads import available_cores
from nmt_cli.training.progress import Position
from nmt_cli.training.setup.init_from import freeze, start_from
from nmt_cli.training.setup.run import TrainingRun
from nmt_cli.training.setup.trial import compiled
from nmt_cli.training.step.optimizer import Optimizer
from nmt_cli.training.step.trainer import Trainer, seed_everything
from nmt_cli.training.tracking.events import Note, Warned

CORES_PER_WORKER = 4
"""Number of cores for each process that segments the next epoch, with subword sampling."""


def build_trainer(run: TrainingRun, *, fresh: bool) -> Trainer:
    """Return a trainer of a new model, with the same weights on all ranks.

    A `fresh` run copies the weights of start.model, if set. A resumed run does not, since its checkpoint
    replaces them. Parameters in start.freeze are frozen. Report what was copied and frozen. Raise `UserError`
    for settings in [start] that do not fit the model.
    """
    config, device = run.config, run.device
    seed_everything(config.training.seed, "weights")  # drawn on the CPU, so they do not depend on the device
    model = run.identity.build().to(device)
    if fresh and config.start.model:
        run.report(Note(start_from(model, run.identity, config.start)))
    if config.start.freeze:
        run.report(Note(freeze(model, config.start.freeze)))
    # Each rank has drawn or read its own weights. This makes them equal bit by bit.
    run.group.share_first(model.parameters())
    forward: Callable[..., Tensor] = compiled_for_all_sizes(model) if compiled(config, device) else model
    return Trainer(model, Optimizer(model, config.optimizer), config, run.precision, run.group, forward)


def chosen_kernels(run: TrainingRun) -> AbstractContextManager[None]:
    """Return a context in which only kernels that work on the GPUs of all ranks are used. Warn of the others.

    With NMT_KERNELS=plain, no kernel is used and none is tried. All ranks call this.
    """
    config, group = run.config, run.group
    if plain_only():
        return without(FAMILIES)
    entries = len(run.tokenizers.target.vocabulary)
    if is_gpu(group.device):
        # Otherwise the first start looks like one that hangs.
        run.report(Note("Compiling for the GPU, about 2 minutes at the first start"))
    reasons = failures(Use(config.model, run.precision.dtype, entries, config.loss.smoothing), group.device)
    group.meet("trying kernels")  # a rank may compile longer than others
    for others in group.gather(reasons):
        reasons |= others
    if reasons:
        run.report(Warned(line(reasons, group.device)))
    return without(reasons)


def warn_if_slow(run: TrainingRun, ranks: int) -> None:
    """Warn of two slow choices on a CPU: fewer cores than `ranks`, the processes on this machine, and bf16
    without instructions for it."""
    if not is_gpu(run.device) and ranks > (cores := available_cores()):
        slower = f"which is slower than --devices {cores}"
        run.report(Warned(f"{ranks} processes share {cores} CPU cores, {slower}."))
    if run.config.training.precision == "bf16" and "bf16" not in translating_precisions(run.device):
        message = "this CPU has no instructions for bf16. Set training.precision=fp32, which is much faster."
        run.report(Warned(message))


@contextmanager
def loading(run: TrainingRun, guard: DatasetGuard, cut: Cut, position: Position) -> Iterator[Loader]:
    """Yield a loader of this rank's batches, and close it after the block. All ranks call this.

    guard: looks at the dataset before each batch.
    cut: how this rank cuts its part of a batch.
    position: where the run is. The loader begins with the next batch.

    The first process of each machine plans the batches, and the others read its files. Report the shares of
    a mixture.
    """
    if run.plan.shares:
        shares = ", ".join(f"{name} {share:.3g}" for name, share in run.plan.shares.items())
        run.report(Note(f"shares of the pairs: {shares}"))
    planner = run.process.local_rank == 0
    with temporary_folder("nmt-epochs-") if planner else nullcontext() as own_folder:
        host = socket.gethostname()  # the ranks of a machine read the plan of its first process
        folders = run.group.gather((host, str(own_folder or "")))
        folder = Path(own_folder or next(path for machine, path in folders if path and machine == host))
        batches = Batches(
            run.train_set,
            run.plan,
            folder,
            planner=planner,
            resegmented=_resegmented(run, folder, planner),
            planner_at_work=lambda: is_locked(folder),
        )
        epoch, number = position.epoch, position.batch
        loader = Loader(batches, cut, run.device, epoch=epoch, number=number, look=guard.check_quickly)
        with closing(loader):
            yield loader


def _resegmented(run: TrainingRun, folder: Path, planner: bool) -> Resegmented | None:
    """Return what segments the training text again in each epoch. Return None if the settings do not change
    the text."""
    config = run.config
    if not (config.sampling.enabled or config.augment.enabled):
        return None
    return Resegmented(
        run.dataset,
        run.tokenizers,
        EpochChanges(
            config.sampling, config.augment, config.training.seed, bool(config.training.guided_alignment)
        ),
        folder,
        workers=max(available_cores() // CORES_PER_WORKER, 1) if planner else 0,
    )
