"""Read small files from outside. Reading always ends soon, whatever the file is."""

import json
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from nmt_cli.errors import UserError

MAX_BYTES = 1 << 28
"""Maximum size of a description or tokenizer. A larger file would only fill the memory."""


def read_ordinary(path: Path) -> bytes:
    """Return a file's content. Raise `UserError` for a pipe, a device or a folder, for more than `MAX_BYTES`,
    and for a name that no file can have."""
    try:
        descriptor = os.open(
            path, os.O_RDONLY | os.O_NONBLOCK
        )  # by default, opening a pipe waits for a writer
    except ValueError as error:  # the name has a NUL, or is not Unicode
        raise UserError(f"{path} is not the name of a file. Copy the whole folder again.") from error
    try:
        # Of the open file, because the path may be replaced at any moment.
        status = os.fstat(descriptor)
        if stat.S_ISREG(status.st_mode) and status.st_size <= MAX_BYTES:
            with os.fdopen(descriptor, "rb", closefd=False) as file:
                return file.read()
    finally:
        os.close(descriptor)
    is_file = stat.S_ISREG(status.st_mode)
    problem = (
        f"has {status.st_size:,} bytes (at most {MAX_BYTES:,})" if is_file else "is not an ordinary file"
    )
    raise UserError(f"{path} {problem}, so it can't be the original. Copy it again.")


def refuse_special(path: Path) -> None:
    """Raise `UserError` if `path` exists and is a folder, a pipe or a device."""
    if not path.is_file() and path.exists():
        raise UserError(f"{path} is not an ordinary file, so it can't be the original. Copy it again.")


def read_if_exists(path: Path) -> bytes:
    """Return a file's content, or b"" if it is missing. Raise `UserError` for a pipe, device or folder."""
    refuse_special(path)
    return path.read_bytes() if path.exists() else b""


@contextmanager
def ordinary(path: Path) -> Iterator[str]:
    """Yield a name for the file `path` that is printable and valid UTF-8, since some libraries take no other.

    It is `path`, or else a name in /dev/fd, which exists during the block. Raise `UserError` for a pipe, a
    device or a folder.
    """
    refuse_special(path)
    if str(path).isprintable():  # False for bytes that are not valid UTF-8
        yield str(path)
        return
    with path.open("rb") as file:
        yield f"/dev/fd/{file.fileno()}"


def parsed_json(content: bytes) -> Any:
    """Return the value of JSON text. Raise `ValueError` if it is invalid or nested too deeply."""
    try:
        return json.loads(content)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def is_inside(name: object) -> bool:
    """Return whether `name` is a string and a relative path without ".." or a zero byte."""
    return (
        isinstance(name, str)
        and not name.startswith("/")
        and ".." not in name.split("/")
        and "\0" not in name
    )
