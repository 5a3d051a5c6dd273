"""The run folder: checkpoints, and which of them is the best and which the last."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from nmt_cli.checkpoints.files import (
    damaged,
    read_description,
    read_tensors,
    write_description,
    write_tensors,
)
from nmt_cli.checkpoints.finding import BEST, CHECKPOINTS, CONFIG, LAST, NAME, WEIGHTS, checkpoints
from nmt_cli.checkpoints.model_folder import FORMAT as MODEL_FORMAT
from nmt_cli.checkpoints.model_folder import Identity, write_model
from nmt_cli.errors import UserError
from nmt_cli.runtime.atomic import folder_written_whole, recover, room_for, unused
from nmt_cli.runtime.foreign_text import parsed_json, read_ordinary

FORMAT = 1
STATE = "state.json"
OPTIMIZER = "optimizer.safetensors"
WHOLE_NUMBERS = ("step", "epoch", "batch", "bad_in_a_row")
TRIAL = ".step-trial."


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Where training stood: all it takes to go on as if nothing had happened."""

    step: int
    weights: Mapping[str, Tensor]
    optimizer: Mapping[str, Tensor]
    progress: Mapping[str, Any]
    """Position in the data, scaler, scores so far: whatever the loop keeps that is not a tensor."""

    ema: Mapping[str, Tensor] = field(default_factory=dict)
    """The moving average of the weights, where there is one."""

    def copied(self) -> Checkpoint:
        """The same with tensors of its own, on the host, which no further step changes."""
        parts = (self.weights, self.optimizer, self.ema)
        weights, optimizer, ema = (
            {name: tensor.detach().to("cpu", copy=True) for name, tensor in part.items()} for part in parts
        )
        return Checkpoint(self.step, weights, optimizer, self.progress, ema)


def save_checkpoint(run: Path, identity: Identity, checkpoint: Checkpoint) -> Path:
    """Write a checkpoint that is there whole or not at all, and point `last` to it."""
    place = run / CHECKPOINTS / f"step-{checkpoint.step:08d}"
    with folder_written_whole(place) as folder:
        _write_files(folder, identity, checkpoint)
    point(run, LAST, place)
    return place


def try_saving(run: Path, identity: Identity, checkpoint: Checkpoint) -> int:
    """Write a checkpoint, read it again, and remove it; returns how many bytes it took."""
    with room_for(run / CHECKPOINTS):
        folder = Path(tempfile.mkdtemp(prefix=TRIAL, dir=_made(run / CHECKPOINTS)))
        try:
            _write_files(folder, identity, checkpoint)
            read_state(folder)
            read_description(folder, CONFIG, MODEL_FORMAT)
            _check_same(folder / WEIGHTS, checkpoint.weights)
            _check_same(folder / OPTIMIZER, checkpoint.optimizer)
            return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
        finally:
            shutil.rmtree(folder)
            if not any((run / CHECKPOINTS).iterdir()):
                (run / CHECKPOINTS).rmdir()


def _made(folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    return folder


def _write_files(folder: Path, identity: Identity, checkpoint: Checkpoint) -> None:
    write_model(folder, identity, checkpoint.weights, {"step": checkpoint.step}, checkpoint.ema)
    write_tensors(folder / OPTIMIZER, checkpoint.optimizer)
    state = {"format": FORMAT, "step": checkpoint.step, **checkpoint.progress}
    write_description(folder, STATE, state, covers=[OPTIMIZER, CONFIG])  # which covers the weights


def _check_same(path: Path, tensors: Mapping[str, Tensor]) -> None:
    found = read_tensors(path)
    if any(not torch.equal(found[name], tensor.detach().cpu()) for name, tensor in tensors.items()):
        raise UserError(f"{path.parent.parent} gives back other bytes than were written; use another disk.")


def read_state(place: Path) -> dict[str, Any]:
    """The part of a checkpoint that is no tensor; `UserError` where its other parts are of another step."""
    state = read_description(place, STATE, FORMAT)
    if OPTIMIZER not in state["files"]:
        raise damaged(place / STATE, "it is another file of a checkpoint")
    if wrong := [key for key, value in state.items() if not _makes_sense(key, value)]:
        raise damaged(place / STATE, f"{wrong[0]} can't be {state[wrong[0]]!r:.100}")
    try:
        step = parsed_json(read_ordinary(place / CONFIG)).get("step")
    except (OSError, UserError, ValueError, AttributeError):
        return state  # the model's own reader says what is wrong with it
    name = NAME.fullmatch(place.name)
    others = {CONFIG: step, "the folder's name": int(name[1]) if name else state["step"]}
    for part, other in others.items():
        if other != state["step"]:
            raise UserError(
                f"{place}: {STATE} is of step {state['step']:,}, but {part} says {other}; these are parts of "
                "two checkpoints: copy one of them again, whole."
            )
    return state


def _makes_sense(key: str, value: Any) -> bool:
    """Whether a value of `state.json` is one that a run can have; what it does not know is passed over."""
    if key in WHOLE_NUMBERS:
        return type(value) is int and 0 <= value < 2**53
    if key in ("seconds", "device_seconds"):
        return _is_number(value)
    if key not in ("scores", "judged"):
        return True
    if not isinstance(value, dict) or not all(step.isdecimal() for step in value):
        return False
    if key == "scores":
        return all(map(_is_number, value.values()))
    return all(isinstance(each, dict) and all(map(_is_number, each.values())) for each in value.values())


def _is_number(value: object) -> bool:
    return type(value) is float or (type(value) is int and abs(value) < 2**53)


def read_optimizer(place: Path) -> dict[str, Tensor]:
    """The optimiser's tensors by name."""
    return read_tensors(place / OPTIMIZER)


def point(run: Path, name: str, place: Path) -> None:
    """Let RUN/`name` lead to a checkpoint; there is no moment at which it leads nowhere."""
    fresh = run / f".{name}.new"
    fresh.unlink(missing_ok=True)
    # Relative, so that a run can be moved as a whole.
    fresh.symlink_to(place.relative_to(run))
    fresh.replace(run / name)


def sweep(run: Path) -> None:
    """Remove what killed saves left in the run, and restore what they were about to replace."""
    for left in (run / CHECKPOINTS).glob(".step-*"):
        recover(left.with_name(left.stem.removeprefix(".")))
        if left.is_dir() and not left.is_symlink():
            shutil.rmtree(left, ignore_errors=True)
        else:
            left.unlink(missing_ok=True)


def set_copies_aside(run: Path) -> dict[Path, Path]:
    """Move folders out of the way of `best` and `last`; where each of them is now.

    They are what a copy of the run has that followed its links.
    """
    places = (run / BEST, run / LAST)
    moved = {place: unused(place) for place in places if place.is_dir() and not place.is_symlink()}
    for place, now in moved.items():
        place.rename(now)
    return moved


def keep_only(run: Path, steps: set[int]) -> None:
    """Remove the checkpoints of all other steps."""
    for step, place in checkpoints(run).items():
        if step not in steps:
            going = place.with_name(f".{place.name}.unfinished")
            # Renamed first: a kill while its files are removed must not leave half a checkpoint.
            place.rename(going)
            shutil.rmtree(going)
