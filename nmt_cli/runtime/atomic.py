"""Folders and files that appear whole or not at all, whenever the machine stops, and none left behind."""

import errno
import fcntl
import gzip
import os
import re
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any, BinaryIO, cast

from nmt_cli.errors import UserError
from nmt_cli.runtime.exchange import exchanged
from nmt_cli.runtime.hashes import sha256_of
from nmt_cli.runtime.locks import take_lock

NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
SECONDS_TO_LOCK = 60
"""A temporary folder that is younger may be about to be locked."""


@contextmanager
def folder_written_whole(out: Path) -> Iterator[Path]:
    """A hidden folder beside `out` to write in; it takes the place of `out` when all went well.

    Whatever an earlier run left unfinished is removed first; a run still at work on `out` is an error.
    """
    recover(out)
    place = resolved(out)
    staging, replaced = _beside(place, "unfinished"), _beside(place, "replaced")
    try:
        staging.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _no_place(out, error) from error
    lock = _taken(staging, out)
    try:
        with room_for(out):
            recover(out)
            shutil.rmtree(replaced, ignore_errors=True)
            _empty(staging)
            yield staging
            _reach_disk(staging)
            _swap(staging, place, replaced)
    except BaseException:
        shutil.rmtree(staging, ignore_errors=True)
        raise
    finally:
        os.close(lock)
    shutil.rmtree(replaced, ignore_errors=True)


def check_place(out: Path) -> None:
    """Raise `UserError` where `folder_written_whole` could not even begin; leaves nothing behind."""
    made: list[Path] = []
    try:
        recover(out)
        staging = _beside(resolved(out), "unfinished")
        for folder in (*reversed(staging.parents), staging):
            if not folder.exists():
                folder.mkdir()
                made.append(folder)
    except OSError as error:
        raise _no_place(out, error) from error
    finally:
        for folder in reversed(made):
            folder.rmdir()


def refuse_other_files(out: Path, kind: str = "", marker: str = "", *, hidden: bool = True) -> None:
    """Raise `UserError` if `out` is a file, or a folder with entries but without a file named `marker`.

    Without a `marker`, the folder must be empty. `kind` names the folder that may be replaced. Entries whose
    names begin with a dot count only if `hidden`.
    """
    if out.exists() and not out.is_dir():
        raise UserError(f"{out} is a file. Choose another --out.")
    if not out.is_dir() or not any(hidden or not path.name.startswith(".") for path in out.iterdir()):
        return
    if not marker:
        raise UserError(f"{out} is not empty. Remove it, or choose another --out.")
    if not (out / marker).exists():
        raise UserError(f"{out} holds files but no {marker}, so it is not a {kind}. Choose another --out.")


def resolved(out: Path) -> Path:
    """Return `out` without symbolic links; raise `UserError` if they form a loop."""
    try:
        return out.resolve()
    except (OSError, RuntimeError) as error:  # RuntimeError up to Python 3.12
        raise UserError(f"{out} is in a loop of symbolic links; name another path.") from error


def _no_place(out: Path, error: OSError) -> UserError:
    return UserError(f"{out} can't be written: {error.strerror}; choose another place.")


def recover(out: Path) -> None:
    """Bring back what stood at `out` if a run was stopped just as it was putting its own in place."""
    place = resolved(out)
    if place.is_mount():
        raise UserError(f"{out} is a mount point and can't be replaced; choose a folder below it.")
    replaced = _beside(place, "replaced")
    if replaced.exists() and not place.exists():
        replaced.rename(place)


@contextmanager
def room_for(out: Path) -> Iterator[None]:
    """Say plainly when there is no room on the disk for what is to become `out`."""
    try:
        yield
    except OSError as error:
        if error.errno and error.errno not in NO_ROOM:
            raise
        reason = error.strerror or "no room for all of it"  # NumPy gives no number
        raise UserError(f"{out} can't be written: {reason}; make room, or choose another place.") from error


def _beside(place: Path, purpose: str) -> Path:
    return place.with_name(f".{place.name}.{purpose}")


def _taken(staging: Path, out: Path) -> int:
    """The open descriptor that holds the lock on `staging`."""
    lock = os.open(staging, os.O_RDONLY)
    try:
        take_lock(lock, staging.parent)
    except BaseException as error:
        os.close(lock)
        if isinstance(error, BlockingIOError):
            raise _busy(out) from error
        raise
    if not staging.exists() or os.fstat(lock).st_ino != staging.stat().st_ino:
        os.close(lock)
        raise _busy(out)
    return lock


def _busy(out: Path) -> UserError:
    return UserError(f"another run is writing {out} now; wait for it, or choose another place.")


def _empty(folder: Path) -> None:
    for entry in folder.iterdir():
        if entry.is_dir():
            shutil.rmtree(entry)
        else:
            entry.unlink()


def _reach_disk(folder: Path) -> None:
    for path in [*folder.rglob("*"), folder]:
        reach_disk(path)


def reach_disk(path: Path) -> None:
    """Wait until a file's content, or a folder's names, would outlive a power cut."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _swap(staging: Path, place: Path, replaced: Path) -> None:
    if place.exists() and exchanged(staging, place):
        staging.rename(replaced)
    else:
        if place.exists():
            place.rename(replaced)
        try:
            staging.rename(place)
        except BaseException:
            recover(place)
            raise
    reach_disk(place.parent)


@contextmanager
def file_written_whole(path: Path) -> Iterator[BinaryIO]:
    """A file to write that is at `path` only when all went well; a name that ends in .gz packs it.

    What is there and no ordinary file, such as a pipe or a device, is written to as it is. What killed
    processes have left beside it is removed first.
    """
    place = resolved(path)
    special = path.exists() and not path.is_file()
    staging = path if special else place.with_name(f".{place.name}.{os.getpid()}.unfinished")
    if not special:
        _sweep(place)
    try:
        # An interrupt may come as soon as the file is there, so that opening it is among what is undone.
        with room_for(path), _opened(staging, path) as raw:
            with suppress(OSError):  # no locks there: nobody then takes it for a killed process's
                fcntl.flock(raw, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if path.exists() and not special:
                os.fchmod(raw.fileno(), path.stat().st_mode)
            if place.suffix == ".gz":
                with gzip.GzipFile(filename="", fileobj=raw, mode="wb", mtime=0) as packed:
                    yield cast(BinaryIO, packed)
            else:
                yield raw
            if special:
                return
            raw.flush()
            os.fsync(raw.fileno())
        staging.replace(place)
        reach_disk(place.parent)
    except BaseException:
        if not special:
            with suppress(OSError):  # nor may it be there
                staging.unlink()
        raise


def _sweep(place: Path) -> None:
    """Remove what processes that were killed have left of a file; those at work hold locks on theirs."""
    number = re.compile(rf"\.{re.escape(place.name)}\.\d+\.unfinished")
    there = [*place.parent.iterdir()] if place.parent.is_dir() else []
    for left in [path for path in there if number.fullmatch(path.name)]:
        with suppress(OSError), left.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            left.unlink()


def _opened(staging: Path, path: Path) -> BinaryIO:
    try:
        return staging.open("wb")
    except OSError as error:
        raise _no_place(path, error) from error


def size_and_hash(path: Path) -> dict[str, Any]:
    """By what a file that was written is known again."""
    return {"bytes": path.stat().st_size, "sha256": sha256_of(path)}


def unused(path: Path) -> Path:
    """The first of PATH.1, PATH.2 and so on that is not there: where to keep what is in the way at `path`."""
    places = (path.with_name(f"{path.name}.{number}") for number in count(1))
    return next(place for place in places if not place.exists())


@contextmanager
def temporary_folder(prefix: str) -> Iterator[Path]:
    """A folder for as long as this process is in here; first removes those of processes that were killed."""
    for left in Path(tempfile.gettempdir()).glob(f"{prefix}*"):
        with suppress(OSError):  # others' folders can't be opened, those at work are locked
            _remove_unlocked(left)
    with tempfile.TemporaryDirectory(prefix=prefix) as folder:
        lock = os.open(folder, os.O_RDONLY)
        try:
            with suppress(OSError):  # no locks there: it is then left behind if this process is killed
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield Path(folder)
        finally:
            os.close(lock)


def _remove_unlocked(folder: Path) -> None:
    lock = os.open(folder, os.O_RDONLY | os.O_NOFOLLOW | os.O_DIRECTORY)
    try:
        # A new one is not even locked for this moment: whose it is may be about to lock it.
        if time.time() - os.fstat(lock).st_mtime > SECONDS_TO_LOCK:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder)
    finally:
        os.close(lock)
