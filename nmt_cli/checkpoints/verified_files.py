"""Read and write tensors and descriptions. Reading verifies them and never runs code.

A description is a JSON file of a folder with a checksum. It covers other files: it has their sizes and
hashes.
"""

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

REQUIRED: Mapping[str, Mapping[str, type]] = {
    "config.json": {"model": dict, "tokenizer": str, "trained_on": dict},
    "state.json": {"step": int},
}
"""Required keys of each description, with their types."""


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write or replace a safetensors file with tensors of any device. Raise `OSError` if writing fails."""
    path.touch()
    mode = path.stat().st_mode  # safetensors makes its files private
    try:
        save_file({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}, path)
    except SafetensorError as error:
        raise _of_system(error, path) or OSError(errno.EIO, os.strerror(errno.EIO), str(path)) from error
    path.chmod(mode)


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Return the tensors of a safetensors file by name, mapped into memory on the CPU.

    Raise `UserError` if the file is damaged, a pipe or a device, and `OSError` if reading fails.
    """
    with plain_errors(path), ordinary(path) as name:
        return load_file(name)


def tensor_shapes(path: Path) -> dict[str, list[int]]:
    """Return tensor shapes by name, read from the header only. Raise errors as `read_tensors` does."""
    with plain_errors(path), ordinary(path) as name, safe_open(name, "pt") as file:
        return {key: file.get_slice(key).get_shape() for key in file.keys()}  # noqa: SIM118


@contextmanager
def plain_errors(path: Path) -> Iterator[None]:
    """Replace errors of safetensors in the block by clear ones that name `path`.

    An error of the system becomes an `OSError` with its number, and a missing file a `FileNotFoundError`. All
    others become a `UserError` about a damaged file.
    """
    try:
        yield
    except FileNotFoundError:
        with path.open("rb"):  # safetensors reports every unreadable file as missing
            raise
    except (SafetensorError, ValueError, RuntimeError) as error:
        raise _of_system(error, path) or damaged(path, str(error).partition("\n")[0]) from error


def _of_system(error: Exception, path: Path) -> OSError | None:
    """Return the `OSError` for the number in a message of safetensors, such as "(os error 28)". Return None
    if the message has no number."""
    number = re.search(r"(?:os error |: [A-Z][a-z ]+\()(\d+)\)", str(error))
    return OSError(int(number[1]), os.strerror(int(number[1])), str(path)) if number else None


def write_description(folder: Path, name: str, description: Mapping[str, Any], covers: list[str]) -> None:
    """Write `description` to the JSON file `name` in `folder`, with a checksum, and with the sizes and hashes
    of the files named in `covers`."""
    files = {covered: size_and_hash(folder / covered) for covered in covers}
    complete = {**description, "files": files}
    text = json.dumps({**complete, "sha256": _digest(complete)}, indent=1, ensure_ascii=False)
    (folder / name).write_text(text + "\n", encoding="utf-8", errors="backslashreplace")


def read_description(folder: Path, name: str, format_version: int) -> dict[str, Any]:
    """Return the content of the JSON file `name` in `folder`, without its checksum.

    Raise `UserError` if the file, or a file that it lists, is missing or damaged. Raise it too if the format
    is not `format_version`, or if a required key is missing.
    """
    path = folder / name
    try:
        description = parsed_json(read_ordinary(path))
    except FileNotFoundError as error:
        raise UserError(f"{path} is missing. Copy it again, or use another checkpoint.") from error
    except ValueError as error:
        raise damaged(path, str(error)) from error
    if not isinstance(description, dict) or not isinstance(description.get("files"), dict):
        raise damaged(path, "not a description")
    if description.get("format") != format_version:
        raise UserError(
            f"{path} has format {description.get('format')}, but this version reads {format_version}. "
            "Use the version of nmt that wrote it."
        )
    if description.pop("sha256", None) != _digest(description):
        raise damaged(path, "its checksum is wrong")
    for key, kind in REQUIRED.get(name, {}).items():
        # `isinstance` would accept true as the number of a step.
        if type(description.get(key)) is not kind:
            raise damaged(path, f"no {key}")
    for covered, written in description["files"].items():
        if not is_inside(covered) or not isinstance(written, dict):
            raise damaged(path, f"it covers {covered!r}")
        _check(folder / covered, written)
    return description


def _digest(description: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(description, sort_keys=True).encode()).hexdigest()


def damaged(path: Path, reason: str) -> UserError:
    """Return, not raise, the error for the damaged file `path`. The message has `reason` in parentheses."""
    return UserError(f"{path} is damaged ({reason}). Copy it again, or use another checkpoint.")


def refuse_not_finite(path: Path, name: str, tensor: Tensor) -> None:
    """Raise `UserError`, which names `path` and `name`, if a value of `tensor` is infinite or nan."""
    # The sum is a quick test. It may overflow although all values are finite.
    if not math.isfinite(tensor.sum()) and not tensor.isfinite().all():
        raise UserError(f"{path}: {name} has values that are not finite. Use another checkpoint.")


def _check(path: Path, written: Mapping[str, Any]) -> None:
    """Raise `UserError` if the file is missing, or if its size or hash differs from `written`."""
    if not path.is_file():
        raise UserError(f"{path} is missing. Copy it again, or use another checkpoint.")
    # Compare the size first: hashing reads the whole file.
    if path.stat().st_size != written.get("bytes") or size_and_hash(path) != written:
        raise damaged(path, "its content has changed")
