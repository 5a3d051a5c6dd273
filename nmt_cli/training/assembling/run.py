"""A training run from its folder and a dataset: everything is made ready here, and put back where it was."""

import fcntl
import os
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nmt_cli.attention.dispatch import WIDEST, implementation
from nmt_cli.checkpoints import model_folder, run_folder
from nmt_cli.checkpoints.files import read_description, read_tensors
from nmt_cli.checkpoints.model_folder import EMA, WEIGHTS, Identity, load_weights
from nmt_cli.checkpoints.run_folder import checkpoints, read_optimizer, read_state
from nmt_cli.data.dataset import TOKENIZERS, TRAIN, Dataset, open_dataset
from nmt_cli.data.filler import Rounding
from nmt_cli.data.loader import Cut, Loader
from nmt_cli.data.resegment import Resegmented, samplers
from nmt_cli.data.schedule import Batches
from nmt_cli.data.verify import verify
from nmt_cli.errors import UserError
from nmt_cli.machine.atomic import temporary_folder
from nmt_cli.machine.processes import available_cores
from nmt_cli.text.tokenizers import load_tokenizers
from nmt_cli.training.assembling.deterministic import repeatable
from nmt_cli.training.assembling.preflight import preflight
from nmt_cli.training.assembling.starting_point import freeze, start_from
from nmt_cli.training.config import TrainConfig
from nmt_cli.training.judging.stopping import refuse_unwatchable
from nmt_cli.training.judging.validation import Judge, longest_sentence, translating
from nmt_cli.training.loop import Loop, Position
from nmt_cli.training.record.environment import environment, keep_environment
from nmt_cli.training.record.events import Note, Report, Warned
from nmt_cli.training.record.html_report import html_report
from nmt_cli.training.record.log import LOG, Log, cut_behind
from nmt_cli.training.record.tensorboard import FOLDER, Scalars, require_tensorboard
from nmt_cli.training.settings import CONFIG, changes, keep_settings
from nmt_cli.training.step.distributed import Group, LostContact, Process, joined, threads_each
from nmt_cli.training.step.ema import Ema
from nmt_cli.training.step.fitting import fitting_tokens
from nmt_cli.training.step.optimizer import build_optimizer, restore_optimizer
from nmt_cli.training.step.trainer import MixedPrecision, Trainer, seed_everything

TOKENS_ON_CPU = 8192
"""Most source plus target tokens of a micro-batch there."""

CORES_A_WORKER = 4
"""Of all cores, one in so many segments text for the coming epoch, where that is asked for."""


def train(
    dataset_folder: Path,
    run: Path,
    config: TrainConfig,
    process: Process,
    device: torch.device,
    report: Report,
    stop_wanted: Callable[[], bool],
    command: Sequence[str] = (),
) -> bool:
    """Train until the end of the run; False if `stop_wanted` ended it before. The same call again goes on.

    The `command` that asked for it is kept in the run folder.
    """
    dataset = open_dataset(dataset_folder)
    refuse_unfit(dataset, config)
    torch.set_num_threads(threads_each(available_cores(), process))
    verified = _in_background(lambda: verify(dataset) if process.local_rank == 0 else None)
    with ExitStack() as stack:
        stack.enter_context(repeatable(config, device))
        group = stack.enter_context(joined(process, device, config.training.rank_timeout))
        if process.first:
            stack.enter_context(_ours(run))
        newest = group.from_first(_newest(run) if process.first else None)
        identity = identity_of(dataset, config)
        trainer = build_trainer(identity, config, group, device, report, fresh=not newest)
        position = _going_on(run, newest, trainer, identity, report) if newest else Position()
        group.share_first(trainer.model.parameters())
        ema = _ema(trainer, newest)
        log = stack.enter_context(_log(run, config, position, report, stack) if process.first else Log(None))
        if process.first:
            keep_environment(run, position.step, environment(command, device, process))
        cut = cut_for(config, trainer, process)
        loader = _loader(dataset, config, cut, group, position, stack)
        settings = config.validation, translating(config)
        judge = Judge(dataset, identity.tokenizers, *settings, group, trainer.precision)
        loop = Loop(
            *(run, config, identity, trainer, loader, judge, log, position, verified, report, stop_wanted),
            ema=ema,
            page=html_report(run, dataset, identity, trainer, report) if process.first else None,
        )
        try:
            if not position.step:
                preflight(loop, dataset.splits[TRAIN], cut)
            return loop.train()
        except LostContact:
            raise
        except Exception:
            verified.result()  # what is wrong with the dataset explains more than what came of it
            raise


def _tell_attention(config: TrainConfig, device: torch.device, report: Report) -> None:
    """Say where a GPU does without our kernel."""
    d_k, d_v = config.model.d_k, config.model.d_v
    if device.type == "cuda" and implementation(device, d_k, d_v) != "fused":
        told = f"heads have {d_k} and {d_v} channels, but our kernel takes multiples of 8 up to {WIDEST}"
        report(Warned(f"{told}; PyTorch's own attention on padded batches is used instead."))


def refuse_unfit(dataset: Dataset, config: TrainConfig) -> None:
    """Say before anything is begun what of the settings can't be had, or not with this dataset."""
    _refuse_long(dataset, config)
    refuse_unwatchable(config, dataset)
    if config.sampling.wanted:
        samplers(load_tokenizers(dataset.folder / TOKENIZERS), config.sampling)
    if config.training.tensorboard:
        require_tensorboard()


def _refuse_long(dataset: Dataset, config: TrainConfig) -> None:
    """Say that a validation set does not fit learned positions."""
    for split in dataset.splits.values():
        longest = max(int(np.diff(side.offsets).max(initial=0)) for side in (split.source, split.target))
        if config.model.positions == "learned" and split.role == "valid" and longest > config.model.longest:
            raise UserError(
                f"{split.name} has a sentence of {longest} tokens, but model.longest has only "
                f"{config.model.longest} positions; raise it."
            )


def _in_background(work: Callable[[], None]) -> "Future[None]":
    """Done by a thread that nobody has to wait for."""
    future: Future[None] = Future()

    def run() -> None:
        try:
            work()
            future.set_result(None)
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, name="verify", daemon=True).start()
    return future


@contextmanager
def _ours(run: Path) -> Iterator[None]:
    """Make the run folder, sweep up what was left in it, and keep other runs out."""
    _refuse_foreign(run)
    try:
        run.mkdir(parents=True, exist_ok=True)
        lock = os.open(run, os.O_RDONLY)
    except OSError as error:
        raise UserError(f"{run} can't be written: {error.strerror}; choose another --out.") from error
    try:
        _take(lock, run)
        run_folder.sweep(run)
        yield
    finally:
        os.close(lock)


def _refuse_foreign(run: Path) -> None:
    """Say that a folder is taken, but by no run."""
    if run.exists() and not run.is_dir():
        raise UserError(f"{run} is a file; choose another --out.")
    foreign = run.is_dir() and any(not path.name.startswith(".") for path in run.iterdir())
    if foreign and not (run / CONFIG).exists():
        raise UserError(f"{run} holds files, but no {CONFIG}, so it is no run; choose another --out.")


def refuse_going_on(run: Path, config: TrainConfig, identity: Identity) -> int:
    """Say that training can't go on in this folder; returns the step that a run there stands at, else 0."""
    _refuse_foreign(run)
    newest = _newest(run) if run.exists() else None
    if not newest:
        return 0
    changes(run, config)
    step: int = _state_of(newest, identity)["step"]
    _refuse_end_behind(step, run, config)
    return step


def _refuse_end_behind(step: int, run: Path, config: TrainConfig) -> None:
    if step > config.training.max_steps:
        raise UserError(
            f"{run} stands at step {step:,} already, behind the end at {config.training.max_steps:,}; "
            "raise --max-steps, or choose another --out."
        )


def _take(lock: int, run: Path) -> None:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise UserError(
            f"another process is training in {run} now; wait for it, or choose another --out."
        ) from error


def _newest(run: Path) -> Path | None:
    """The checkpoint to go on from."""
    return next(iter(reversed(checkpoints(run).values())), None)


def identity_of(dataset: Dataset, config: TrainConfig) -> Identity:
    """The model to train on `dataset`, and where its knowledge comes from."""
    manifest = dataset.manifest
    trained_on = {
        "inputs": manifest.get("inputs"),
        "files": {
            name: file["sha256"] for name, file in manifest["files"].items() if name.startswith(f"{TRAIN}.")
        },
        "longest": longest_sentence(config),
    }
    return Identity(config.model, load_tokenizers(dataset.folder / TOKENIZERS), trained_on)


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
    seed_everything(config.training.seed, "weights")
    model = identity.build().to(device)
    if fresh and config.start.model:
        report(Note(start_from(model, identity, config.start)))
    if config.start.freeze:
        report(Note(freeze(model, config.start.freeze)))
    _tell_attention(config, device, report)
    precision = MixedPrecision(precision_for(config.training.precision, device), device)
    forward: Callable[..., Tensor] = torch.compile(model, dynamic=True) if compiled(config, device) else model
    return Trainer(model, build_optimizer(model, config.optimizer), config, precision, group, forward)


def precision_for(wanted: str, device: torch.device) -> str:
    """The numbers to compute in; `UserError` where the device lacks them."""
    if device.type == "cpu":
        there = ["fp32", "bf16"]
    else:
        bf16 = torch.cuda.is_bf16_supported(including_emulation=False)
        there = ["fp32", "fp16", *(["bf16"] if bf16 else [])]
    if wanted == "auto":
        return "fp32" if device.type == "cpu" else there[-1]
    if wanted not in there:
        raise UserError(f"training.precision is {wanted}, but {device.type} has only {', '.join(there)}.")
    return wanted


def compiled(config: TrainConfig, device: torch.device) -> bool:
    """Whether the model is compiled, and micro-batches rounded up to few shapes."""
    return config.training.compile == "on" or (config.training.compile == "auto" and device.type == "cuda")


def _state_of(folder: Path, identity: Identity) -> dict[str, Any]:
    """Where a checkpoint stands, after checking that it belongs to this dataset."""
    try:
        state = read_state(folder)
        description = read_description(folder, model_folder.CONFIG, model_folder.FORMAT)
    except UserError as error:
        raise UserError(f"{error} Or remove {folder} to go on from the checkpoint before it.") from error
    if description["tokenizer"] != identity.tokenizers.fingerprint:
        raise UserError(f"{folder} was trained with another vocabulary; choose another --out.")
    if description["trained_on"].get("files") != identity.trained_on["files"]:
        raise UserError(f"{folder} was trained on another dataset; choose another --out.")
    return state


def _restored(folder: Path, trainer: Trainer, identity: Identity) -> Position:
    """Put weights, optimiser and scale back."""
    state = _state_of(folder, identity)
    load_weights(trainer.model, read_tensors(folder / WEIGHTS), folder / WEIGHTS)
    tensors = read_optimizer(folder)
    restore_optimizer(trainer.model, trainer.optimizer, tensors)
    trainer.scale.restore(tensors)
    known = {field.name for field in fields(Position)}
    return Position(**{key: value for key, value in state.items() if key in known})


def _going_on(run: Path, newest: Path, trainer: Trainer, identity: Identity, report: Report) -> Position:
    """Put back what the newest checkpoint holds; tells what changed since."""
    for change in changes(run, trainer.config):
        report(Note(f"changed: {change}"))
    position = _restored(newest, trainer, identity)
    _refuse_end_behind(position.step, run, trainer.config)
    report(Note(f"going on from step {position.step} ({newest})"))
    return position


def _ema(trainer: Trainer, newest: Path | None) -> Ema | None:
    """The moving average of the weights, if one is wanted; it begins where there was none before."""
    if not trainer.config.optimizer.ema:
        return None
    ema = Ema(trainer.model, trainer.config.optimizer.ema)
    if newest and (newest / EMA).exists():
        ema.restore(read_tensors(newest / EMA))
    return ema


def _log(run: Path, config: TrainConfig, position: Position, report: Report, stack: ExitStack) -> Log:
    """The log, ending where the run stands."""
    cut_behind(run / LOG, position.step, judged=str(position.step) in position.scores)
    keep_settings(run, config)
    if not config.training.tensorboard:
        return Log(run / LOG)
    scalars = Scalars(run / FOLDER, position.step, report)
    stack.callback(scalars.close)
    return Log(run / LOG, scalars.write)


def cut_for(config: TrainConfig, trainer: Trainer, process: Process) -> Cut:
    """What this process works on of each batch, in pieces that its device has room for."""
    device = trainer.precision.device
    share = -(-2 * config.batch.tokens // process.world)
    max_tokens = config.training.max_tokens_per_device or (
        TOKENS_ON_CPU if device.type == "cpu" else fitting_tokens(trainer, share, config.batch)
    )
    parts = -(-share // max_tokens)
    rounding = Rounding.of(share // parts // 2) if compiled(config, device) else None
    return Cut(process.rank, process.world, max_tokens, rounding)


def _loader(
    dataset: Dataset, config: TrainConfig, cut: Cut, group: Group, position: Position, stack: ExitStack
) -> Loader:
    """The steps from `position` on."""
    process = group.process
    planner = process.local_rank == 0
    mine = str(stack.enter_context(temporary_folder("nmt-epochs-"))) if planner else ""
    host = socket.gethostname()
    folder = next(theirs for there, theirs in group.gather((host, mine)) if theirs and there == host)
    split = dataset.splits[TRAIN]
    anew = _resegmented(dataset, config, Path(folder), planner)
    batches = Batches(split, config.batch, config.training.seed, Path(folder), planner=planner, anew=anew)
    loader = Loader(batches, cut, group.device, epoch=position.epoch, number=position.batch)
    return stack.enter_context(loader)


def _resegmented(dataset: Dataset, config: TrainConfig, folder: Path, planner: bool) -> Resegmented | None:
    """Training pairs that each epoch segments anew, where that is asked for."""
    if not config.sampling.wanted:
        return None
    tokenizers = load_tokenizers(dataset.folder / TOKENIZERS)
    workers = max(available_cores() // CORES_A_WORKER, 1) if planner else 0
    return Resegmented(dataset, tokenizers, config.sampling, config.training.seed, folder, workers=workers)


def find_device(wanted: str, place: Process) -> torch.device:
    """The device of this process; `UserError` where there is none of that kind."""
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if wanted == "cpu" or (wanted == "auto" and not count):
        return torch.device("cpu")
    if not count:
        raise UserError("this machine has no GPU that PyTorch can use; take --device cpu.")
    if place.local_rank >= count:
        raise UserError(
            f"process {place.local_rank + 1} on this machine needs a GPU of its own, but there are {count}; "
            "take --device cpu, or fewer --devices."
        )
    torch.cuda.set_device(place.local_rank)
    return torch.device("cuda", place.local_rank)
