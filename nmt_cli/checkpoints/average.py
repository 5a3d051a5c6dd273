"""Averaging models: a folder whose every weight is the mean of theirs.

One tensor at a time is read from each model, so memory is that of one model, however many there are.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from safetensors import safe_open
from torch import Tensor

from nmt_cli.checkpoints.card import CARD, About, card
from nmt_cli.checkpoints.files import plain_errors, read_description, refuse_not_finite
from nmt_cli.checkpoints.finding import CONFIG, EMA, WEIGHTS
from nmt_cli.checkpoints.model_folder import FORMAT, TOKENIZERS, Identity, read_identity, write_model
from nmt_cli.errors import UserError
from nmt_cli.model.config import disagreements
from nmt_cli.runtime.atomic import folder_written_whole
from nmt_cli.runtime.foreign_text import ordinary, parsed_json, read_ordinary

AVERAGED = "averaged"
PIECE = 1 << 20
NOTHING_MORE = About()


@dataclass(frozen=True, slots=True)
class Part:
    """One of the models to average; its weights stay on the disk."""

    place: Path
    identity: Identity
    description: Mapping[str, Any]
    tensors: Mapping[str, tuple[str, list[int]]]
    """Type and shape of each tensor."""

    file: str = WEIGHTS
    """Which of its weights are meant."""

    @property
    def step(self) -> int | None:
        """The training step, where it is a checkpoint."""
        return self.description.get("step")


def average(
    places: Sequence[Path], out: Path, file: str = WEIGHTS, about: About = NOTHING_MORE
) -> list[Part]:
    """Write the mean of the models in `places` as the model folder `out`; tells what went in.

    `file` is that of the weights in each of them. `config.json` says so too, and the model's card, with what
    else is known `about` it. What may differ between them (dropout, and how weights began) is as in the last
    of them.
    """
    check_replaceable(out, places)
    parts = read_parts(places, file)
    identity = parts[-1].identity
    with folder_written_whole(out) as folder:
        origin: dict[str, Any] = {AVERAGED: [_entry(part, identity.trained_on) for part in parts]}
        origin |= common_search(parts)
        tensors = mean(parts)
        write_model(folder, identity, tensors, origin)
        count = sum(tensor.numel() for tensor in tensors.values())
        (folder / CARD).write_text(card(identity, count, _told(parts), about), "utf-8")
    return parts


def _told(parts: Sequence[Part]) -> str:
    """Which weights went in, in words."""
    what = "moving average (EMA) of weights" if parts[0].file == EMA else "mean"
    steps = [part.step for part in parts if part.step is not None]
    if len(steps) < len(parts):
        return f"{what} of {len(parts)} models" if len(parts) > 1 else "those of another model"
    if len(steps) == 1 and parts[0].file != EMA:
        return f"step {steps[0]:,}"
    return f"{what} of step{'s' if len(steps) > 1 else ''} {', '.join(f'{step:,}' for step in steps)}"


def common_search(parts: Sequence[Part]) -> dict[str, Any]:
    """How the owner of imported models decodes, where all of them are the same owner's."""
    known = [part.description.get("search") for part in parts]
    return {"search": known[0]} if known[0] and all(each == known[0] for each in known) else {}


def read_parts(places: Sequence[Path], file: str = WEIGHTS) -> list[Part]:
    """Look at each model; `UserError` for the first that is damaged, or has no mean with the first."""
    parts: list[Part] = []
    for place in places:
        description = read_description(place, CONFIG, FORMAT)
        identity = read_identity(place, description)
        with _opened(place / file) as opened:
            slices = {name: opened.get_slice(name) for name in opened.keys()}  # noqa: SIM118  # it is no dict
            tensors = {name: (s.get_dtype(), s.get_shape()) for name, s in slices.items()}
        parts.append(Part(place, identity, description, tensors, file))
        _check_alike(parts[0], parts[-1])
    return parts


def mean(parts: Sequence[Part]) -> dict[str, Tensor]:
    """The mean of each tensor, summed in float64 and of the type that it has."""
    shapes = {name: shape for name, (_, shape) in parts[0].tensors.items()}
    # The largest first: its sum is gone again when most of the result is there.
    return {
        name: _mean(parts, name) for name in sorted(shapes, key=lambda name: prod(shapes[name]), reverse=True)
    }


def _mean(parts: Sequence[Part], name: str) -> Tensor:
    total = _read(parts[0], name)
    dtype = total.dtype
    total = total.double()
    for part in parts[1:]:
        _add(total, _read(part, name))
    return total.div_(len(parts)).to(dtype)


def _add(total: Tensor, tensor: Tensor) -> None:
    """In pieces, for a sum of two types makes a float64 copy of the other one on the way."""
    flat, more = total.view(-1), tensor.view(-1)
    for start in range(0, len(flat), PIECE):
        flat[start : start + PIECE] += more[start : start + PIECE]


def _read(part: Part, name: str) -> Tensor:
    """A tensor that is mapped; the file is opened anew, for what stays open stays in memory."""
    with _opened(part.place / part.file) as file:
        tensor: Tensor = file.get_tensor(name)
    refuse_not_finite(part.place / part.file, name, tensor)
    return tensor


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    try:
        with plain_errors(path), ordinary(path) as name, safe_open(name, "pt") as file:
            yield file
    except FileNotFoundError as error:
        raise UserError(f"{path} is missing; copy it again, or use another checkpoint.") from error


def _check_alike(first: Part, part: Part) -> None:
    """Name the first thing in which the two are not models of one kind."""
    told = f"{part.place} can't be averaged with {first.place}"
    config, wanted = part.identity.config, first.identity.config
    for key in disagreements(config, wanted, "shape", "use"):
        raise UserError(f"{told}: its {key} is {getattr(config, key)}, not {getattr(wanted, key)}.")
    if part.identity.tokenizers.fingerprint != first.identity.tokenizers.fingerprint:
        raise UserError(f"{told}: it has another vocabulary; take models of one dataset.")
    for name in sorted(first.tensors.keys() | part.tensors.keys()):
        if name not in part.tensors or name not in first.tensors:
            raise UserError(f"{told}: {name} is in one of them only.")
        if part.tensors[name] != first.tensors[name]:
            (dtype, shape), (wanted_dtype, wanted_shape) = part.tensors[name], first.tensors[name]
            raise UserError(f"{told}: its {name} is {dtype} {shape}, not {wanted_dtype} {wanted_shape}.")


def _entry(part: Part, trained_on: Mapping[str, Any]) -> dict[str, Any]:
    """What `config.json` says of one of them: enough to find it again, wherever it lies."""
    known = {key: part.description[key] for key in ("step", AVERAGED) if key in part.description}
    other = {} if part.identity.trained_on == trained_on else {"trained_on": part.identity.trained_on}
    ema = {"ema": True} if part.file == EMA else {}
    return {**known, **ema, "sha256": part.description["files"][part.file]["sha256"], **other}


def check_replaceable(out: Path, places: Sequence[Path]) -> None:
    """Only an earlier average may go; what else stands at `out` could be anything, a run for one."""
    if not out.exists():
        return
    if any(out.samefile(place) for place in places if place.exists()):
        raise UserError(f"{out} is one of the models to average; choose another --out.")
    if out.is_dir() and (not any(out.iterdir()) or _is_average(out)):
        return
    raise UserError(f"{out} is there already, and no average that could be replaced; choose another --out.")


def _is_average(folder: Path) -> bool:
    try:
        description = parsed_json(read_ordinary(folder / CONFIG))
    except (OSError, UserError, ValueError):
        return False
    names = {path.name for path in folder.iterdir()}
    # With anything else in it the folder is somebody's, and stays.
    return AVERAGED in description and names <= {CONFIG, WEIGHTS, TOKENIZERS, CARD}
