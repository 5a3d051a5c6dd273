"""The parts of a run, made from its settings and a dataset: model, trainer, and the batches it takes."""

import socket
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import torch
from torch import Tensor

from nmt_cli.attention.dispatch import WIDEST, implementation
from nmt_cli.checkpoints.model_folder import Identity
from nmt_cli.data.batching.filler import Rounding
from nmt_cli.data.batching.loader import Cut, Loader
from nmt_cli.data.batching.mixed_plan import mixed_plan
from nmt_cli.data.batching.resegment import Resegmented
from nmt_cli.data.batching.schedule import Batches
from nmt_cli.data.dataset import TOKENIZERS, TRAIN, Dataset, Split
from nmt_cli.data.guard import DatasetGuard
from nmt_cli.errors import UserError
from nmt_cli.runtime.atomic import temporary_folder
from nmt_cli.runtime.devices import (
    compiling_pays,
    is_gpu,
    training_precisions,
    translating_precisions,
    usual_training_precision,
)
from nmt_cli.runtime.locks import is_locked
from nmt_cli.runtime.memory import has_own_memory
from nmt_cli.runtime.threads import available_cores
from nmt_cli.text.tokenizers import load_tokenizers
from nmt_cli.training.config import TrainConfig
from nmt_cli.training.position import Position
from nmt_cli.training.setup.init_from import freeze, start_from
from nmt_cli.training.step.distributed import Group, Process
from nmt_cli.training.step.fitting import fitting_tokens
from nmt_cli.training.step.optimizer import Optimizer
from nmt_cli.training.step.trainer import MixedPrecision, Trainer, seed_everything
from nmt_cli.training.tracking.events import Note, Report, Warned
from nmt_cli.training.validation.metrics import longest_sentence

TOKENS_ON_CPU = 8192
"""Source plus target tokens of a micro-batch on a CPU, at most."""

CORES_A_WORKER = 4
"""For so many cores one worker process segments the coming epoch anew, with subword sampling."""


def identity_of(dataset: Dataset, config: TrainConfig) -> Identity:
    """The model to train on `dataset`, and where its knowledge comes from."""
    manifest = dataset.manifest
    trained_on = {
        "inputs": manifest.get("inputs"),
        "files": {
            name: file["sha256"] for name, file in manifest["files"].items() if name.startswith(f"{TRAIN}.")
        },
        "longest": longest_sentence(config),
        "length_ratio": _length_ratio(dataset.splits[TRAIN]),
    }
    if corpora := manifest["splits"][TRAIN].get("corpora"):
        trained_on["corpora"] = corpora
    return Identity(config.model, load_tokenizers(dataset.folder / TOKENIZERS), trained_on)


def _length_ratio(train: Split) -> float:
    """Target tokens for each source token."""
    return round(int(train.target.offsets[-1]) / max(1, int(train.source.offsets[-1])), 3)


def build_trainer(
    identity: Identity,
    config: TrainConfig,
    group: Group,
    device: torch.device,
    report: Report,
    *,
    fresh: bool,
) -> Trainer:
    """A model, the same on every rank, and all that trains it; a `fresh` one has what it starts from."""
    seed_everything(config.training.seed, "weights")  # drawn on the CPU, so the same for every device
    model = identity.build().to(device)
    if fresh and config.start.model:
        report(Note(start_from(model, identity, config.start)))
    if config.start.freeze:
        report(Note(freeze(model, config.start.freeze)))
    tell_slow_ways(config, device, report, group.process.local_world)
    precision = MixedPrecision(precision_for(config.training.precision, device), device)
    forward: Callable[..., Tensor] = torch.compile(model, dynamic=True) if compiled(config, device) else model
    shares = (group.process.rank, group.process.world) if config.optimizer.split else (0, 1)
    optimizer = Optimizer(model, config.optimizer, *shares)
    return Trainer(model, optimizer, config, precision, group, forward)


def tell_slow_ways(config: TrainConfig, device: torch.device, report: Report, ranks: int = 1) -> None:
    """Warn about settings that make training slow on `device`, which `ranks` local processes share."""
    warn_if_crowded(device, report, ranks)
    if config.training.precision == "bf16" and "bf16" not in translating_precisions(device):
        report(Warned("this CPU has no instructions for bf16; training.precision=fp32 is much faster here."))
    d_k, d_v = config.model.d_k, config.model.d_v
    dtype = torch.float32 if config.training.precision == "fp32" else torch.float16
    if is_gpu(device) and implementation(device, d_k, d_v, dtype) != "fused":
        most = f"up to {WIDEST[2]} (fp32: {WIDEST[4]})"
        told = f"heads have {d_k} and {d_v} channels, but our kernel takes multiples of 8 {most}"
        report(Warned(f"{told}; PyTorch's own attention on padded batches is used instead."))


def warn_if_crowded(device: torch.device, report: Report, ranks: int) -> None:
    """Warn if more ranks than cores share a CPU."""
    if not is_gpu(device) and ranks > (cores := available_cores()):
        report(Warned(f"{ranks} processes share {cores} CPU cores, which is slower than --devices {cores}."))


def precision_for(wanted: str, device: torch.device) -> str:
    """The numbers to compute in; `UserError` where the device lacks them."""
    if wanted == "auto":
        return usual_training_precision(device)
    if wanted not in (there := training_precisions(device)):
        raise UserError(f"training.precision is {wanted}, but {device.type} has only {', '.join(there)}.")
    return wanted


def compiled(config: TrainConfig, device: torch.device) -> bool:
    """Whether the model is compiled, and micro-batches rounded up to few shapes."""
    return config.training.compile == "on" or (config.training.compile == "auto" and compiling_pays(device))


def cut_for(config: TrainConfig, trainer: Trainer, process: Process) -> Cut:
    """What this process works on of each batch, in pieces that its device has room for."""
    device = trainer.precision.device
    share = -(-2 * config.batch.tokens // process.world)  # of both sides, rounded up
    max_tokens = config.training.max_tokens_per_device or (
        fitting_tokens(trainer, share, config.batch) if has_own_memory(device) else TOKENS_ON_CPU
    )
    parts = -(-share // max_tokens)
    # A model is compiled again for every shape, so there should be few shapes.
    rounding = Rounding.of(share // parts // 2) if compiled(config, device) else None
    return Cut(process.rank, process.world, max_tokens, rounding)


def build_loader(
    dataset: Dataset,
    guard: DatasetGuard,
    config: TrainConfig,
    cut: Cut,
    group: Group,
    position: Position,
    stack: ExitStack,
) -> Loader:
    """The batches from `position` on; the processes of a machine share a folder for the order of an epoch."""
    process = group.process
    planner = process.local_rank == 0
    mine = str(stack.enter_context(temporary_folder("nmt-epochs-"))) if planner else ""
    host = socket.gethostname()  # ranks of one machine read what its first process has planned
    folder = next(theirs for there, theirs in group.gather((host, mine)) if theirs and there == host)
    split = dataset.splits[TRAIN]
    anew = _resegmented(dataset, config, Path(folder), planner)
    batches = Batches(
        *(split, config.batch, config.training.seed, Path(folder)),
        planner=planner,
        mixed=mixed_plan(dataset, config.batch, config.mixing, config.training.seed),
        anew=anew,
        planner_at_work=lambda: is_locked(Path(folder)),
    )
    epoch, number = position.epoch, position.batch
    loader = Loader(batches, cut, group.device, epoch=epoch, number=number, look=guard.check_quickly)
    return stack.enter_context(loader)


def _resegmented(dataset: Dataset, config: TrainConfig, folder: Path, planner: bool) -> Resegmented | None:
    """Training pairs that each epoch segments anew, where that is asked for."""
    if not (config.sampling.wanted or config.augment.wanted):
        return None
    tokenizers = load_tokenizers(dataset.folder / TOKENIZERS)
    workers = max(available_cores() // CORES_A_WORKER, 1) if planner else 0
    return Resegmented(
        *(dataset, tokenizers, config.sampling, config.training.seed, folder),
        workers=workers,
        augment=config.augment,
    )
