"""Small files from outside, read whole; whatever they are, reading them ends soon."""

import json
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from nmt_cli.errors import UserError

MOST_BYTES = 1 << 28
"""No description or tokeniser has as many; what is larger would only fill the memory."""


def read_ordinary(path: Path) -> bytes:
    """The content of an ordinary file; `UserError` for a pipe, a device, or what is far too large."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # a pipe nobody writes to would be waited for
    try:
        found = os.fstat(descriptor)
        if stat.S_ISREG(found.st_mode) and found.st_size <= MOST_BYTES:
            with os.fdopen(descriptor, "rb", closefd=False) as file:
                return file.read()
    finally:
        os.close(descriptor)
    what = f"has {found.st_size:,} bytes" if stat.S_ISREG(found.st_mode) else "is no ordinary file"
    raise UserError(f"{path} {what}, so it can't be what was written; copy it again.")


def refuse_odd(path: Path) -> None:
    """`UserError` where there is something at `path` that is no ordinary file: a pipe would be waited for."""
    if not path.is_file() and path.exists():
        raise UserError(f"{path} is no ordinary file, so it can't be what was written; copy it again.")


def bytes_if_there(path: Path) -> bytes:
    """The content of an ordinary file of any size; nothing where there is none."""
    refuse_odd(path)
    return path.read_bytes() if path.exists() else b""


@contextmanager
def ordinary(path: Path) -> Iterator[str]:
    """A name of an ordinary file, in UTF-8 even where its own is not, for libraries that take no other."""
    refuse_odd(path)
    if str(path).isprintable():  # what stands for other bytes is not
        yield str(path)
        return
    with path.open("rb") as file:
        yield f"/dev/fd/{file.fileno()}"


def parsed_json(content: bytes) -> Any:
    """What JSON says; `ValueError` also where it is nested too deeply to be read."""
    try:
        return json.loads(content)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def is_inside(name: object) -> bool:
    """Whether a name that a file gives is that of a file below the same folder."""
    return (
        isinstance(name, str)
        and not name.startswith("/")
        and ".." not in name.split("/")
        and "\0" not in name
    )
