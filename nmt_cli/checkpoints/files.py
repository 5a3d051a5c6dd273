"""Tensors and descriptions in files that are checked when they are read; nothing read here is ever run."""

import errno
import hashlib
import json
import math
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from nmt_cli.errors import UserError
from nmt_cli.runtime.atomic import size_and_hash
from nmt_cli.runtime.foreign_text import is_inside, ordinary, parsed_json, read_ordinary

HELD: Mapping[str, Mapping[str, type]] = {
    "config.json": {"model": dict, "tokenizer": str, "trained_on": dict},
    "state.json": {"step": int},
}
"""What descriptions of these names hold at least."""


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write tensors of any device."""
    path.touch()
    mode = path.stat().st_mode  # safetensors leaves its files to their owner alone
    try:
        save_file({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}, path)
    except SafetensorError as error:
        raise _of_system(error, path) or OSError(errno.EIO, os.strerror(errno.EIO), str(path)) from error
    path.chmod(mode)


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Read tensors, mapped into memory where that is possible."""
    with plain_errors(path), ordinary(path) as name:
        return load_file(name)


def tensor_shapes(path: Path) -> dict[str, list[int]]:
    """The shape of each tensor by name; reads no more than the file's header."""
    with plain_errors(path), ordinary(path) as name, safe_open(name, "pt") as file:
        return {key: file.get_slice(key).get_shape() for key in file.keys()}  # noqa: SIM118


@contextmanager
def plain_errors(path: Path) -> Iterator[None]:
    """What safetensors and PyTorch say of a file, as what it means to who reads it."""
    try:
        yield
    except FileNotFoundError:
        with path.open("rb"):  # safetensors says so wherever it can't open a file
            raise
    except (SafetensorError, ValueError, RuntimeError) as error:
        raise _of_system(error, path) or damaged(path, str(error).partition("\n")[0]) from error


def _of_system(error: Exception, path: Path) -> OSError | None:
    """The system's error that a library has put into words: a full disk, for one, must be known as one."""
    number = re.search(r"(?:os error |: [A-Z][a-z ]+\()(\d+)\)", str(error))
    return OSError(int(number[1]), os.strerror(int(number[1])), str(path)) if number else None


def write_description(folder: Path, name: str, description: Mapping[str, Any], covers: list[str]) -> None:
    """Write JSON that also holds size and hash of the files of `folder` that it `covers`."""
    files = {covered: size_and_hash(folder / covered) for covered in covers}
    whole = {**description, "files": files}
    text = json.dumps({**whole, "sha256": _digest(whole)}, indent=1, ensure_ascii=False)
    (folder / name).write_text(text + "\n", encoding="utf-8", errors="backslashreplace")


def read_description(folder: Path, name: str, format_version: int) -> dict[str, Any]:
    """What `write_description` wrote, after a look at every file it covers."""
    path = folder / name
    try:
        description = parsed_json(read_ordinary(path))
    except FileNotFoundError as error:
        raise UserError(f"{path} is missing; copy it again, or use another checkpoint.") from error
    except ValueError as error:
        raise damaged(path, str(error)) from error
    if not isinstance(description, dict) or not isinstance(description.get("files"), dict):
        raise damaged(path, "it is no description")
    if description.get("format") != format_version:
        raise UserError(
            f"{path} is of format {description.get('format')}, but this version reads {format_version}; "
            "use the version of nmt that wrote it."
        )
    if description.pop("sha256", None) != _digest(description):
        raise damaged(path, "not what was written")
    for key, kind in HELD.get(name, {}).items():
        if type(description.get(key)) is not kind:
            raise damaged(path, f"no {key}")
    for covered, written in description["files"].items():
        if not is_inside(covered) or not isinstance(written, dict):
            raise damaged(path, f"it names {covered!r}")
        _check(folder / covered, written)
    return description


def _digest(description: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(description, sort_keys=True).encode()).hexdigest()


def damaged(path: Path, reason: str) -> UserError:
    """What to raise where a file can't be what was written."""
    return UserError(f"{path} is damaged ({reason}); copy it again, or use another checkpoint.")


def refuse_not_finite(path: Path, name: str, tensor: Tensor) -> None:
    """Say that a tensor of the file at `path` holds what is no number."""
    # The sum is quick to make, and shows nearly always that all is well; the largest may overflow.
    if not math.isfinite(tensor.sum()) and not tensor.isfinite().all():
        raise UserError(f"{path}: {name} holds values that are no finite numbers; take another checkpoint.")


def _check(path: Path, written: Mapping[str, Any]) -> None:
    if not path.is_file():
        raise UserError(f"{path} is missing; copy it again, or use another checkpoint.")
    # The size first, which costs nothing; hashing reads the whole file.
    if path.stat().st_size != written.get("bytes") or size_and_hash(path) != written:
        raise damaged(path, "not the bytes that were written")
