"""Average models weight by weight. Tensors are read one at a time, so memory is that of one model.

A part is one of the models of an average.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from math import prod
from pathlib import Path
from typing import Any

from safetensors import safe_open
from torch import Tensor

from nmt_cli.checkpoints.card import CARD, NO_FACTS, About, card
from nmt_cli.checkpoints.finding import CONFIG, EMA, TOKENIZERS, WEIGHTS
from nmt_cli.checkpoints.model_folder import (
    CONFIDENCE,
    FORMAT,
    SHORTLIST,
    Identity,
    read_identity,
    read_shortlist,
    write_model,
    write_shortlist,
)
from nmt_cli.checkpoints.verified_files import plain_errors, read_description, refuse_not_finite
from nmt_cli.errors import UserError
from nmt_cli.model.config import disagreements
from nmt_cli.runtime.atomic import folder_written_whole
from nmt_cli.runtime.foreign_text import ordinary, parsed_json, read_ordinary

AVERAGED = "averaged"
PIECE = 1 << 20


@dataclass(frozen=True, slots=True)
class Part:
    """A model to average: its folder, descriptions, and types and shapes of tensors, without the weights."""

    folder: Path
    identity: Identity
    description: Mapping[str, Any]
    tensors: Mapping[str, tuple[str, list[int]]]
    """Type and shape of each tensor."""

    file: str = WEIGHTS
    """File name of the weights."""

    @property
    def step(self) -> int | None:
        """The training step in `config.json`, or None if there is no step, as in an average."""
        return self.description.get("step")


def average(
    folders: Sequence[Path], out: Path, file: str | None = None, about: About = NO_FACTS
) -> list[Part]:
    """Write the mean of several models as the model folder `out`. Return the averaged models, in order.

    folders: model folders of the same shape and vocabulary.
    file: the weights file to average in each folder. None is the moving averages (EMA) if all folders have
        one, and the weights otherwise.
    about: facts for the model card.

    Settings that may differ between models, such as dropout, are those of the last one. Raise `UserError`
    if a model is damaged, if two do not match, or if `out` may not be replaced.
    """
    check_replaceable(out, folders)
    has_ema = all((folder / EMA).exists() for folder in folders)
    parts = read_parts(folders, file or (EMA if has_ema else WEIGHTS))
    identity = parts[-1].identity
    # A calibration is valid only for the probabilities of the model that it was made for.
    trained_on = {name: value for name, value in identity.trained_on.items() if name != CONFIDENCE}
    if about.calibration:
        trained_on[CONFIDENCE] = asdict(about.calibration)
    identity = replace(identity, trained_on=trained_on)
    with folder_written_whole(out) as folder:
        origin: dict[str, Any] = {AVERAGED: [_entry(part, identity.trained_on) for part in parts]}
        origin |= common_search(parts) | about.recorded
        tensors = mean(parts)
        write_model(folder, identity, tensors, origin)
        if shortlist := read_shortlist(folders[-1], identity.tokenizers):
            write_shortlist(folder, shortlist, identity.tokenizers)
        count = sum(tensor.numel() for tensor in tensors.values())
        (folder / CARD).write_text(card(identity, count, _weights_text(parts), about), "utf-8")
    return parts


def _weights_text(parts: Sequence[Part]) -> str:
    """Return the origin of the weights for the model card.

    - One checkpoint: "step 5". Several: "mean of steps 1, 2".
    - Models without steps: "those of another model", or "mean of 2 models".
    - Files of EMA: "moving average (EMA) of weights" instead of "mean".
    """
    kind = "moving average (EMA) of weights" if parts[0].file == EMA else "mean"
    steps = [part.step for part in parts if part.step is not None]
    if len(steps) < len(parts):
        return f"{kind} of {len(parts)} models" if len(parts) > 1 else "those of another model"
    if len(steps) == 1 and parts[0].file != EMA:
        return f"step {steps[0]:,}"
    return f"{kind} of step{'s' if len(steps) > 1 else ''} {', '.join(f'{step:,}' for step in steps)}"


def common_search(parts: Sequence[Part]) -> dict[str, Any]:
    """Return {"search": settings} if all models were imported with the same search settings. Otherwise return
    {}."""
    first, *others = (part.description.get("search") for part in parts)
    return {"search": first} if first and all(search == first for search in others) else {}


def read_parts(folders: Sequence[Path], file: str = WEIGHTS) -> list[Part]:
    """Return the verified descriptions of models, in order. Weights are not read.

    `file` names the weights file in each folder. Raise `UserError` if a model is damaged, or if it differs
    from the first in settings, vocabulary or tensors.
    """
    parts: list[Part] = []
    for folder in folders:
        description = read_description(folder, CONFIG, FORMAT)
        identity = read_identity(folder, description)
        with _opened(folder / file) as opened:
            slices = {name: opened.get_slice(name) for name in opened.keys()}  # noqa: SIM118  # not a dict
            tensors = {name: (s.get_dtype(), s.get_shape()) for name, s in slices.items()}
        parts.append(Part(folder, identity, description, tensors, file))
        _check_alike(parts[0], parts[-1])
    return parts


def mean(parts: Sequence[Part]) -> dict[str, Tensor]:
    """Return each tensor's mean over `parts`, by name, in its dtype. Raise `UserError` for inf or nan."""
    sizes = {name: prod(shape) for name, (_, shape) in parts[0].tensors.items()}
    means = {}
    # The largest first: its float64 sum is freed before most of the result exists.
    for name in sorted(sizes, key=lambda name: sizes[name], reverse=True):
        total = _read(parts[0], name)
        dtype = total.dtype
        total = total.double()
        for part in parts[1:]:
            _add(total, _read(part, name))
        means[name] = total.div_(len(parts)).to(dtype)
    return means


def _add(total: Tensor, tensor: Tensor) -> None:
    """Add `tensor` to `total` in place, in pieces, so that no full copy of `tensor` is made."""
    flat, more = total.view(-1), tensor.view(-1)
    for start in range(0, len(flat), PIECE):
        flat[start : start + PIECE] += more[start : start + PIECE]


def _read(part: Part, name: str) -> Tensor:
    """Return the tensor `name` of `part`. Raise `UserError` if it is missing, damaged or not finite."""
    # Opened for each tensor, because the pages of an open file stay in memory.
    with _opened(part.folder / part.file) as file:
        tensor: Tensor = file.get_tensor(name)
    refuse_not_finite(part.folder / part.file, name, tensor)
    return tensor


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    """Yield an open safetensors file. Raise `UserError` if the file is missing or damaged."""
    try:
        with plain_errors(path), ordinary(path) as name, safe_open(name, "pt") as file:
            yield file
    except FileNotFoundError as error:
        raise UserError(f"{path} is missing. Copy it again, or use another checkpoint.") from error


def _check_alike(first: Part, part: Part) -> None:
    """Raise `UserError` if `part` cannot be averaged with `first`: settings, vocabulary, or the names, dtypes
    or shapes of tensors differ."""
    problem = f"{part.folder} cannot be averaged with {first.folder}"
    config, expected = part.identity.config, first.identity.config
    for key in disagreements(config, expected, "shape", "use"):
        raise UserError(f"{problem}: its {key} is {getattr(config, key)}, not {getattr(expected, key)}.")
    if part.identity.tokenizers.fingerprint != first.identity.tokenizers.fingerprint:
        raise UserError(f"{problem}: it has another vocabulary. Use models of one dataset.")
    for name in sorted(first.tensors.keys() | part.tensors.keys()):
        if name not in part.tensors or name not in first.tensors:
            raise UserError(f"{problem}: only one of them has {name}.")
        if part.tensors[name] != first.tensors[name]:
            (dtype, shape), (first_dtype, first_shape) = part.tensors[name], first.tensors[name]
            raise UserError(f"{problem}: its {name} is {dtype} {shape}, not {first_dtype} {first_shape}.")


def _entry(part: Part, trained_on: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entry of `config.json` for one of the averaged models.

    It has the SHA-256 of the weights, the step, and "ema" for an EMA file. If the model is an average
    itself, it also has its parts. A training record is added only if it differs from `trained_on`.
    """
    origin = {key: part.description[key] for key in ("step", AVERAGED) if key in part.description}
    other = {} if part.identity.trained_on == trained_on else {"trained_on": part.identity.trained_on}
    ema = {"ema": True} if part.file == EMA else {}
    return {**origin, **ema, "sha256": part.description["files"][part.file]["sha256"], **other}


def check_replaceable(out: Path, folders: Sequence[Path]) -> None:
    """Raise `UserError` if the average must not be written to `out`: it is one of `folders`, or has content
    that is not an average."""
    if not out.exists():
        return
    if any(out.samefile(folder) for folder in folders if folder.exists()):
        raise UserError(f"{out} is one of the models to average. Choose another --out.")
    # A file has the name "", which no average has, so it is refused below.
    names = {path.name for path in out.iterdir()} if out.is_dir() else {""}
    if not names:
        return
    try:
        description = parsed_json(read_ordinary(out / CONFIG))
        if (
            isinstance(description, dict)
            and AVERAGED in description
            and names <= {CONFIG, WEIGHTS, TOKENIZERS, CARD, SHORTLIST}
        ):
            return
    except (OSError, UserError, ValueError):
        pass  # it is not an average
    raise UserError(f"{out} exists and is not an average that could be replaced. Choose another --out.")
