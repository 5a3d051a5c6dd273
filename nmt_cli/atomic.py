"""Folders that appear whole or not at all, whenever the machine stops."""

import errno
import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from nmt_cli.errors import UserError

NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@contextmanager
def folder_written_whole(out: Path) -> Iterator[Path]:
    """A hidden folder beside `out` to write in; it takes the place of `out` when all went well.

    Whatever an earlier run left unfinished is removed first; a run still at work on `out` is an error.
    """
    staging, replaced = beside(out, "unfinished"), beside(out, "replaced")
    place = _absolute(out)
    try:
        staging.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{out} can't be written: {error.strerror}; choose another place.") from error
    lock = _taken(staging, out)
    try:
        with room_for(out):
            _restore(replaced, place)
            _empty(staging)
            yield staging
            _reach_disk(staging)
            _swap(staging, place, replaced)
    finally:
        shutil.rmtree(staging, ignore_errors=True)
        os.close(lock)


@contextmanager
def room_for(out: Path) -> Iterator[None]:
    """Say plainly when there is no room on the disk for what is to become `out`."""
    try:
        yield
    except OSError as error:
        if error.errno not in NO_ROOM:
            raise
        raise UserError(
            f"{out} can't be written: {error.strerror}; make room, or choose another place."
        ) from error


def beside(path: Path, purpose: str) -> Path:
    """A hidden path next to `path`."""
    path = _absolute(path)
    return path.with_name(f".{path.name}.{purpose}")


def _absolute(path: Path) -> Path:
    return Path(os.path.abspath(path))  # noqa: PTH100 - "." has no name, and ".." must go


def _taken(staging: Path, out: Path) -> int:
    """The open descriptor that holds the lock on `staging`."""
    lock = os.open(staging, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(lock)
        raise UserError(f"another run is writing {out} now; wait for it, or choose another place.") from error
    return lock


def _restore(replaced: Path, out: Path) -> None:
    """Undo or finish a swap that was cut off."""
    if replaced.exists() and not out.exists():
        replaced.rename(out)
    shutil.rmtree(replaced, ignore_errors=True)


def _empty(folder: Path) -> None:
    for entry in folder.iterdir():
        if entry.is_dir():
            shutil.rmtree(entry)
        else:
            entry.unlink()


def _reach_disk(folder: Path) -> None:
    for path in [*folder.rglob("*"), folder]:
        descriptor = os.open(path, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)


def _swap(staging: Path, out: Path, replaced: Path) -> None:
    if out.exists():
        out.rename(replaced)
    staging.rename(out)
    descriptor = os.open(out.parent, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)
    shutil.rmtree(replaced, ignore_errors=True)
