"""A training run from its folder and a dataset: everything is made ready here, and put back where it was."""

import fcntl
import os
import socket
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import fields
from pathlib import Path

import torch
from torch import Tensor

from nmt_cli.checkpoints import model_folder
from nmt_cli.checkpoints.files import read_description, read_tensors
from nmt_cli.checkpoints.model_folder import WEIGHTS, Identity, load_weights
from nmt_cli.checkpoints.run_folder import checkpoints, read_optimizer, read_state
from nmt_cli.data.dataset import TOKENIZERS, TRAIN, Dataset, open_dataset
from nmt_cli.data.filler import Rounding
from nmt_cli.data.loader import Cut, Loader
from nmt_cli.data.schedule import Batches
from nmt_cli.data.verify import verify
from nmt_cli.data.workers import available_cores
from nmt_cli.errors import UserError
from nmt_cli.text.tokenizers import load_tokenizers
from nmt_cli.training.config import TrainConfig
from nmt_cli.training.distributed import Group, Place, joined, threads_each
from nmt_cli.training.events import Note, Report
from nmt_cli.training.log import LOG, Log, cut_behind
from nmt_cli.training.loop import Loop, Position
from nmt_cli.training.memory import fitting_tokens
from nmt_cli.training.optimizer import build_optimizer, restore_optimizer
from nmt_cli.training.settings import CONFIG, changes, keep_settings
from nmt_cli.training.step import Precision, Trainer, seed_everything
from nmt_cli.training.validation import Judge


def train(
    dataset_folder: Path,
    run: Path,
    config: TrainConfig,
    place: Place,
    device: torch.device,
    report: Report,
    stop_wanted: Callable[[], bool],
) -> bool:
    """Train until the end of the run; False if `stop_wanted` ended it before. The same call again goes on."""
    dataset = open_dataset(dataset_folder)
    torch.set_num_threads(threads_each(available_cores(), place))
    if config.training.deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # else cuBLAS refuses
        torch.use_deterministic_algorithms(True)
    with ExitStack() as stack:
        group = stack.enter_context(joined(place, device, config.training.rank_timeout))
        if place.first:
            stack.enter_context(_ours(run))
            for change in changes(run, config):
                report(Note(f"changed: {change}"))
        restored = group.from_first(_newest(run) if place.first else None)
        identity = _identity(dataset, config)
        trainer = _trainer(identity, config, group, device)
        position = Position()
        if restored:
            position = _restore(restored, trainer, identity)
            report(Note(f"going on from step {position.step} ({restored})"))
        log = _log(run, config, position) if place.first else Log(None)
        stack.callback(log.close)
        max_tokens = config.training.max_tokens_per_device or fitting_tokens(
            trainer, 2 * config.batch.tokens // place.world, config.batch.longest
        )
        loader = _loader(dataset, config, group, position, max_tokens, stack)
        verified = stack.enter_context(ThreadPoolExecutor(1, "verify")).submit(
            verify if place.local_rank == 0 else lambda _: None, dataset
        )
        judge = Judge(dataset, identity.tokenizers, config.validation, group, trainer.precision)
        loop = Loop(
            run, config, identity, trainer, loader, judge, log, position, verified, report, stop_wanted
        )
        try:
            return loop.train()
        except Exception:
            verified.result()
            raise


@contextmanager
def _ours(run: Path) -> Iterator[None]:
    """Make the run folder, and keep other runs out of it."""
    foreign = run.is_dir() and any(not path.name.startswith(".") for path in run.iterdir())
    if foreign and not (run / CONFIG).exists():
        raise UserError(f"{run} holds files, but no {CONFIG}, so it is no run; choose another --out.")
    try:
        run.mkdir(parents=True, exist_ok=True)
        lock = os.open(run, os.O_RDONLY)
    except OSError as error:
        raise UserError(f"{run} can't be written: {error.strerror}; choose another --out.") from error
    try:
        _take(lock, run)
        yield
    finally:
        os.close(lock)


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


def _identity(dataset: Dataset, config: TrainConfig) -> Identity:
    """The model to train on `dataset`, and where its knowledge comes from."""
    manifest = dataset.manifest
    trained_on = {
        "inputs": manifest.get("inputs"),
        "files": {
            name: file["sha256"] for name, file in manifest["files"].items() if name.startswith(f"{TRAIN}.")
        },
    }
    return Identity(config.model, load_tokenizers(dataset.folder / TOKENIZERS), trained_on)


def _trainer(identity: Identity, config: TrainConfig, group: Group, device: torch.device) -> Trainer:
    """A model with new weights, the same on every rank, and all that trains it."""
    seed_everything(config.training.seed, "weights")
    model = identity.build().to(device)
    precision = Precision(precision_for(config.training.precision, device), device)
    forward: Callable[..., Tensor] = torch.compile(model) if compiled(config, device) else model
    return Trainer(model, build_optimizer(model, config.optimizer), config, precision, group, forward)


def precision_for(wanted: str, device: torch.device) -> str:
    """The numbers to compute in; `UserError` where the device lacks them."""
    if device.type == "cpu":
        there = ["fp32", "bf16"]
    else:
        there = ["fp32", "fp16", *(["bf16"] if torch.cuda.is_bf16_supported() else [])]
    if wanted == "auto":
        return "fp32" if device.type == "cpu" else there[-1]
    if wanted not in there:
        raise UserError(f"training.precision is {wanted}, but {device.type} has only {', '.join(there)}.")
    return wanted


def compiled(config: TrainConfig, device: torch.device) -> bool:
    """Whether the model is compiled, and micro-batches rounded up to few shapes."""
    return config.training.compile == "on" or (config.training.compile == "auto" and device.type == "cuda")


def _restore(place: Path, trainer: Trainer, identity: Identity) -> Position:
    """Put weights, optimiser and scale back, after checking that they belong to this dataset."""
    state = read_state(place)
    description = read_description(place, model_folder.CONFIG, model_folder.FORMAT)
    if description["tokenizer"] != identity.tokenizers.fingerprint:
        raise UserError(f"{place} was trained with another vocabulary; choose another --out.")
    if description["trained_on"].get("files") != identity.trained_on["files"]:
        raise UserError(f"{place} was trained on another dataset; choose another --out.")
    load_weights(trainer.model, read_tensors(place / WEIGHTS), place / WEIGHTS)
    tensors = read_optimizer(place)
    restore_optimizer(trainer.model, trainer.optimizer, tensors)
    trainer.scale.restore(tensors)
    known = {field.name for field in fields(Position)}
    return Position(**{key: value for key, value in state.items() if key in known})


def _log(run: Path, config: TrainConfig, position: Position) -> Log:
    """The log, ending where the run stands."""
    cut_behind(run / LOG, position.step, judged=str(position.step) in position.scores)
    keep_settings(run, config)
    return Log(run / LOG)


def _loader(
    dataset: Dataset,
    config: TrainConfig,
    group: Group,
    position: Position,
    max_tokens: int,
    stack: ExitStack,
) -> Loader:
    """The steps from `position` on."""
    place = group.place
    planner = place.local_rank == 0
    mine = stack.enter_context(tempfile.TemporaryDirectory(prefix="nmt-plan-")) if planner else ""
    host = socket.gethostname()
    folder = next(theirs for there, theirs in group.gather((host, mine)) if theirs and there == host)
    split = dataset.splits[TRAIN]
    batches = Batches(split, config.batch, config.training.seed, Path(folder), planner=planner)
    rounding = Rounding.of(max_tokens // 2) if compiled(config, group.device) else None
    cut = Cut(place.rank, place.world, max_tokens, rounding)
    loader = Loader(split, batches, cut, group.device, epoch=position.epoch, number=position.batch)
    return stack.enter_context(loader)


def find_device(wanted: str, place: Place) -> torch.device:
    """The device of this process; `UserError` where there is none of that kind."""
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if wanted == "cpu" or (wanted == "auto" and not count):
        return torch.device("cpu")
    if place.local_rank >= count:
        raise UserError(
            f"process {place.local_rank + 1} on this machine needs a GPU of its own, but there are {count}; "
            "take --device cpu, or fewer --devices."
        )
    torch.cuda.set_device(place.local_rank)
    return torch.device("cuda", place.local_rank)
