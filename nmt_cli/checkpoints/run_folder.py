"""Read and write run folders: checkpoints, and the links `best` and `last` to two of them.

A checkpoint is a model folder with two more files. `optimizer.safetensors` has the optimiser's tensors, and
`state.json` the rest of the state of training.
"""

from __future__ import annotations

import errno
import shutil
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from nmt_cli.checkpoints.finding import BEST, CHECKPOINTS, CONFIG, LAST, NAME, WEIGHTS, checkpoints
from nmt_cli.checkpoints.model_folder import FORMAT as MODEL_FORMAT
from nmt_cli.checkpoints.model_folder import Identity, write_model
from nmt_cli.checkpoints.verified_files import (
    damaged,
    read_description,
    read_tensors,
    write_description,
    write_tensors,
)
from nmt_cli.errors import Caution, UserError
from nmt_cli.named_values import COUNT, Values
from nmt_cli.runtime.atomic import folder_written_whole, recover, reporting_full_disk, unused
from nmt_cli.runtime.foreign_text import parsed_json, read_ordinary
from nmt_cli.runtime.locks import UNSUPPORTED

FORMAT = 1
STATE = "state.json"
OPTIMIZER = "optimizer.safetensors"
TRIAL = ".step-trial."


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The complete state of a training at one step. A run that resumes from it loses nothing."""

    step: int
    weights: Mapping[str, Tensor]
    optimizer: Mapping[str, Tensor]
    progress: Mapping[str, Any]
    """Other state of the training loop: position in the data, times, scores."""

    ema: Mapping[str, Tensor] = field(default_factory=dict)
    """Moving average of the weights. Empty if the run has none."""

    def copied(self) -> Checkpoint:
        """Return a checkpoint with copies of the tensors on the CPU, and the same `progress` object."""
        parts = (self.weights, self.optimizer, self.ema)
        weights, optimizer, ema = (
            {name: tensor.detach().to("cpu", copy=True) for name, tensor in part.items()} for part in parts
        )
        return Checkpoint(self.step, weights, optimizer, self.progress, ema)


def save_checkpoint(run: Path, identity: Identity, checkpoint: Checkpoint) -> Path:
    """Write a checkpoint completely or not at all, and return its folder.

    A checkpoint of the same step is replaced. The link `last` then points to the new folder. Raise
    `UserError` if writing fails.
    """
    path = run / CHECKPOINTS / f"step-{checkpoint.step:08d}"
    with folder_written_whole(path) as folder:
        _write_files(folder, identity, checkpoint)
    # Only now, so that the link never leads to an incomplete checkpoint.
    point(run, LAST, path)
    return path


def try_saving(run: Path, identity: Identity, checkpoint: Checkpoint) -> int:
    """Write a checkpoint to a temporary folder in `run`, read it back and remove it. Return its size.

    The size is in bytes. A run does this before the first step, so that it does not train for hours and then
    fail to save. Raise `UserError` if the disk is full, or if the values read differ from those written.
    """
    checkpoint_folders = run / CHECKPOINTS
    with reporting_full_disk(checkpoint_folders):
        checkpoint_folders.mkdir(exist_ok=True)
        folder = Path(tempfile.mkdtemp(prefix=TRIAL, dir=checkpoint_folders))
        try:
            _write_files(folder, identity, checkpoint)
            read_state(folder)
            read_description(folder, CONFIG, MODEL_FORMAT)
            _check_same(folder / WEIGHTS, checkpoint.weights)
            _check_same(folder / OPTIMIZER, checkpoint.optimizer)
            return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
        finally:
            shutil.rmtree(folder)
            if not any(checkpoint_folders.iterdir()):
                checkpoint_folders.rmdir()


def _write_files(folder: Path, identity: Identity, checkpoint: Checkpoint) -> None:
    write_model(folder, identity, checkpoint.weights, {"step": checkpoint.step}, checkpoint.ema)
    write_tensors(folder / OPTIMIZER, checkpoint.optimizer)
    state = {"format": FORMAT, "step": checkpoint.step, **checkpoint.progress}
    write_description(folder, STATE, state, covers=[OPTIMIZER, CONFIG])  # config.json covers the weights


def _check_same(path: Path, tensors: Mapping[str, Tensor]) -> None:
    stored = read_tensors(path)
    if any(not torch.equal(stored[name], tensor.detach().cpu()) for name, tensor in tensors.items()):
        raise UserError(f"{path.parent.parent} returns other bytes than were written. Use another disk.")


def read_state(folder: Path) -> dict[str, Any]:
    """Return the content of a checkpoint's `state.json`.

    Raise `UserError` if the file is missing or invalid. Raise it too if `config.json` or the folder's name
    has another step, as after copying the files of two checkpoints into one folder.
    """
    state = read_description(folder, STATE, FORMAT)
    if OPTIMIZER not in state["files"]:
        raise damaged(folder / STATE, "it is another file of a checkpoint")
    _check_progress(Values(state, lambda problem: damaged(folder / STATE, problem)))
    try:
        step = parsed_json(read_ordinary(folder / CONFIG)).get("step")
    except (OSError, UserError, ValueError, AttributeError):
        return state  # reading the model reports the error
    name = NAME.fullmatch(folder.name)
    steps = {CONFIG: step, "the folder's name": int(name[1]) if name else state["step"]}
    for part, other in steps.items():
        if other != state["step"]:
            raise UserError(
                f"{folder} mixes two checkpoints: {STATE} is of step {state['step']:,}, but {part} is of "
                f"step {other}. "
                "Copy one complete checkpoint again."
            )
    return state


def _check_progress(state: Values) -> None:
    """Raise the error of `state` if a count, a duration or a score in it is impossible. Unknown keys may have
    any value, because newer versions may add some."""
    for name in ("step", "epoch", "batch", "bad_in_a_row"):
        state.integer(name, 0, COUNT)
    for name in ("seconds", "device_seconds"):
        if name in state:
            state.measurement(name)
    if "scores" in state:
        scores = state.table("scores")
        for step in _steps(scores):
            scores.measurement(step)  # nan, if the run diverged
    if "judged" in state:
        judged = state.table("judged")
        for step in _steps(judged):
            metrics = judged.table(step)
            for metric in metrics:
                metrics.measurement(metric)


def _steps(table: Values) -> Iterator[str]:
    """Yield the names in a table, which are steps. Raise the error of `table` for another name."""
    for step in table:
        if not step.isdecimal():
            raise table.error(f"{table.label}{step} is not the number of a step")
        yield step


def point(run: Path, name: str, folder: Path) -> None:
    """Create or replace the relative link `name` in `run`, which points to the checkpoint `folder`.

    It is replaced atomically, so that readers always find one. If the file system has no links, give a
    `Caution` instead.
    """
    fresh = run / f".{name}.new"
    fresh.unlink(missing_ok=True)
    try:
        # A relative link, so that a run can be moved.
        fresh.symlink_to(folder.relative_to(run))
    except OSError as error:
        # Azure's blobs and Google Drive in Colab have no links either.
        if error.errno not in (errno.EPERM, *UNSUPPORTED):  # FAT gives EPERM
            raise
        problem = f"the file system of {run} has no links ({error.strerror})"
        use = "so nmt uses its newest checkpoint in place of the best. Name a checkpoint to use another"
        warnings.warn(f"{problem}, {use}.", Caution, stacklevel=2)
        return
    fresh.replace(run / name)


def sweep(run: Path) -> None:
    """Remove leftovers of killed saves. First move back each checkpoint that a killed save had moved away."""
    for remains in (run / CHECKPOINTS).glob(".step-*"):
        recover(remains.with_name(remains.stem.removeprefix(".")))
        if remains.is_dir() and not remains.is_symlink():
            shutil.rmtree(remains, ignore_errors=True)
        else:
            remains.unlink(missing_ok=True)


def set_copies_aside(run: Path) -> dict[Path, Path]:
    """Rename `best` and `last` to names like "best.1" where they are folders instead of links, as after a
    copy of the run. Return the new path of each."""
    folders = (run / BEST, run / LAST)
    moved = {folder: unused(folder) for folder in folders if folder.is_dir() and not folder.is_symlink()}
    for folder, now in moved.items():
        folder.rename(now)
    return moved


def keep_only(run: Path, steps: set[int]) -> None:
    """Remove all checkpoints of a run except those of `steps`."""
    for step, folder in checkpoints(run).items():
        if step not in steps:
            doomed = folder.with_name(f".{folder.name}.unfinished")
            # Rename first, so that a kill during removal leaves no incomplete checkpoint.
            folder.rename(doomed)
            shutil.rmtree(doomed, ignore_errors=True)  # `sweep` removes what another process still reads
