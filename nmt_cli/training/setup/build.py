"""Builds the model, the trainer and the batches of a run from its settings and a dataset."""

import socket
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, closing
from pathlib import Path

import torch
from torch import Tensor

from nmt_cli.checkpoints.model_folder import GUIDED, TERMS, Identity, shareable
from nmt_cli.corpus.raw_files import sha256
from nmt_cli.data.batching.loader import Cut, Loader
from nmt_cli.data.batching.planner import plan_of
from nmt_cli.data.batching.resegment import Resegmented
from nmt_cli.data.batching.schedule import Batches
from nmt_cli.data.dataset import TOKENIZERS, TRAIN, Dataset
from nmt_cli.data.guard import DatasetGuard
from nmt_cli.errors import UserError
from nmt_cli.model.kernel_trials import Use
from nmt_cli.model.kernel_verdicts import failures, line
from nmt_cli.runtime.atomic import temporary_folder
from nmt_cli.runtime.devices import (
    is_gpu,
    training_precisions,
    translating_precisions,
    usual_training_precision,
)
from nmt_cli.runtime.kernels.families import FAMILIES, without
from nmt_cli.runtime.kernels.torch_private import compiled_for_all_sizes
from nmt_cli.runtime.locks import is_locked
from nmt_cli.runtime.threads import available_cores
from nmt_cli.text.tokenizers import load_tokenizers
from nmt_cli.training.config import TrainConfig
from nmt_cli.training.progress import Position
from nmt_cli.training.setup.init_from import freeze, start_from
from nmt_cli.training.setup.trial import compiled
from nmt_cli.training.step.distributed import Group
from nmt_cli.training.step.optimizer import Optimizer
from nmt_cli.training.step.trainer import MixedPrecision, Trainer, seed_everything
from nmt_cli.training.tracking.events import Note, Report, Warned

CORES_PER_WORKER = 4
"""Number of cores for each process that segments the next epoch, with subword sampling."""


def identity_of(dataset: Dataset, config: TrainConfig) -> Identity:
    """Return the identity of the model to train: settings, tokenisers and training record. The record has
    inputs, hashes, maximum tokens, length ratio and mixed corpora of the training data. It also has the
    weight of guided alignment and the hash of annotated terms."""
    manifest, train = dataset.manifest, dataset.splits[TRAIN]
    trained_on = {
        "inputs": manifest.get("inputs"),
        "files": {
            name: file["sha256"] for name, file in manifest["files"].items() if name.startswith(f"{TRAIN}.")
        },
        "longest": config.batch.max_length,
        # target tokens per source token
        "length_ratio": round(int(train.target.offsets[-1]) / max(1, int(train.source.offsets[-1])), 3),
    }
    if corpora := manifest["splits"][TRAIN].get("corpora"):
        trained_on["corpora"] = corpora
    if weight := config.training.guided_alignment:
        trained_on[GUIDED] = weight
    if config.augment.terms:
        trained_on[TERMS] = sha256(Path(config.augment.terms_file))
    return Identity(config.model, load_tokenizers(dataset.folder / TOKENIZERS), shareable(trained_on))


def build_trainer(
    identity: Identity,
    config: TrainConfig,
    precision: MixedPrecision,
    group: Group,
    report: Report,
    *,
    fresh: bool,
) -> Trainer:
    """Return a trainer of a new model, equal on all ranks. If `fresh`, copy weights of start.model, if set.
    Freeze start.freeze. Report notes and warnings. Raise `UserError` for bad start settings."""
    device = group.device
    seed_everything(config.training.seed, "weights")  # drawn on the CPU, so they do not depend on the device
    model = identity.build().to(device)
    if fresh and config.start.model:
        report(Note(start_from(model, identity, config.start)))
    if config.start.freeze:
        report(Note(freeze(model, config.start.freeze)))
    # Each rank has drawn or read its own weights. This makes them equal bit by bit.
    group.share_first(model.parameters())
    forward: Callable[..., Tensor] = compiled_for_all_sizes(model) if compiled(config, device) else model
    return Trainer(model, Optimizer(model, config.optimizer), config, precision, group, forward)


def chosen_kernels(
    identity: Identity, config: TrainConfig, precision: MixedPrecision, group: Group, report: Report
) -> AbstractContextManager[None]:
    """Return a context with the kernels that work on the GPUs of all ranks, and warn of others. All ranks
    call this. With training.kernels=plain, use PyTorch's operations only."""
    if config.training.kernels == "plain":
        return without(FAMILIES)
    entries = len(identity.tokenizers.target.vocabulary)
    reasons = failures(Use(config.model, precision.dtype, entries, config.loss.smoothing), group.device)
    group.meet("trying kernels")  # a rank may compile longer than others
    for others in group.gather(reasons):
        reasons |= others
    if reasons:
        report(Warned(line(reasons, group.device)))
    return without(reasons)


def warn_if_slow(config: TrainConfig, device: torch.device, report: Report, ranks: int) -> None:
    """Warn if a CPU has fewer cores than `ranks`, the local processes, or no instructions for a set bf16."""
    if not is_gpu(device) and ranks > (cores := available_cores()):
        report(Warned(f"{ranks} processes share {cores} CPU cores, which is slower than --devices {cores}."))
    if config.training.precision == "bf16" and "bf16" not in translating_precisions(device):
        message = "this CPU has no instructions for bf16. Set training.precision=fp32, which is much faster."
        report(Warned(message))


def precision_for(setting: str, device: torch.device) -> str:
    """Return "fp32", "tf32", "bf16" or "fp16" for `setting`, the value of training.precision. "auto" gives
    the usual precision of `device`. Raise `UserError` if `device` cannot train with the precision."""
    if setting == "auto":
        return usual_training_precision(device)
    if setting not in (available := training_precisions(device)):
        raise UserError(
            f"training.precision is {setting}, but {device.type} has only {', '.join(available)}."
        )
    return setting


def precision_in_words(setting: str, precision: MixedPrecision) -> str:
    """Return the name of `precision`, with the reason if `setting` is "auto" and the device a CPU."""
    if setting != "auto" or is_gpu(precision.device):
        return precision.name
    reason = "faster than fp32" if precision.name == "bf16" else "bf16 is not faster"
    return f"{precision.name} (auto: {reason} on this CPU)"


def build_loader(
    dataset: Dataset,
    guard: DatasetGuard,
    config: TrainConfig,
    cut: Cut,
    group: Group,
    position: Position,
    report: Report,
    stack: ExitStack,
) -> Loader:
    """Return a loader of this rank's batches from `position` on, which `stack` closes. Report the shares of a
    mixture. All ranks call this. The first process of a machine writes each epoch's order for the others."""
    process = group.process
    planner = process.local_rank == 0
    own_folder = str(stack.enter_context(temporary_folder("nmt-epochs-"))) if planner else ""
    host = socket.gethostname()  # the ranks of a machine read the plan of its first process
    folders = group.gather((host, own_folder))
    folder = Path(own_folder or next(path for machine, path in folders if path and machine == host))
    plan = plan_of(dataset, config.batch, config.mixing, config.training.seed)
    if plan.shares:
        shares = ", ".join(f"{name} {share:.3g}" for name, share in plan.shares.items())
        report(Note(f"shares of the pairs: {shares}"))
    resegmented = None
    if config.sampling.enabled or config.augment.enabled:
        resegmented = Resegmented(
            *(dataset, load_tokenizers(dataset.folder / TOKENIZERS), config.sampling),
            *(config.training.seed, folder),
            workers=max(available_cores() // CORES_PER_WORKER, 1) if planner else 0,
            augment=config.augment,
        )
    batches = Batches(
        dataset.splits[TRAIN],
        plan,
        folder,
        planner=planner,
        resegmented=resegmented,
        planner_at_work=lambda: is_locked(folder),
    )
    epoch, number = position.epoch, position.batch
    loader = Loader(batches, cut, group.device, epoch=epoch, number=number, look=guard.check_quickly)
    return stack.enter_context(closing(loader))
