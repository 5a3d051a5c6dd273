"""Write folders and files completely or not at all, even if the process or the machine stops."""

import ctypes
import errno
import fcntl
import gzip
import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any, BinaryIO, cast

from nmt_cli.errors import UserError
from nmt_cli.runtime.hashes import sha256_of
from nmt_cli.runtime.locks import take_lock

NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Error numbers of a full disk, a quota, and a file size limit."""

AT_WORKING_FOLDER = -100
RENAME_EXCHANGE = 2
"""Linux's number. RENAME_SWAP of macOS has the same one."""

SECONDS_TO_LOCK = 60
"""Age up to which a temporary folder without a lock may belong to a process that is about to lock it."""


@contextmanager
def folder_written_whole(out: Path) -> Iterator[Path]:
    """Yield an empty hidden folder beside `out`, which replaces `out` if the block ends without an error.

    After an error, nothing of it is left, and `out` is unchanged. First remove unfinished folders of earlier
    runs. Raise `UserError` if another run writes `out`, if `out` can't be written or is a mount point, or if
    the disk is full.
    """
    recover(out)
    target = resolved(out)
    staging = _beside(target, "unfinished")
    with ExitStack() as stack:
        try:
            stack.enter_context(parents_made(staging))
            staging.mkdir(exist_ok=True)
        except OSError as error:
            raise _not_writable(out, error) from error
        stack.callback(os.close, _lock(staging, out))
        stack.enter_context(reporting_full_disk(out))
        stack.enter_context(renamed_when_whole(staging, target))
        for entry in staging.iterdir():
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
        yield staging


@contextmanager
def renamed_when_whole(staging: Path, target: Path) -> Iterator[None]:
    """Give the folder `staging` the name `target` after the block, in which the caller fills it.

    A folder at `target` is replaced. Before the new name is seen, all content is safe from a power failure.
    After an error, `staging` is removed, and `target` is unchanged. Only one process may write `target`:
    `folder_written_whole` takes care of that.
    """
    replaced = _beside(target, "replaced")
    try:
        # Before anything of an earlier run is removed, as `replaced` may be the only complete folder.
        recover(target)
        shutil.rmtree(replaced, ignore_errors=True)
        yield
        # Before the rename, or a power cut could leave a folder with its final name and incomplete files.
        for path in [*staging.rglob("*"), staging]:
            reach_disk(path)
        _swap(staging, target, replaced)
    except BaseException:
        shutil.rmtree(staging, ignore_errors=True)
        raise
    shutil.rmtree(replaced, ignore_errors=True)


@contextmanager
def parents_made(path: Path) -> Iterator[None]:
    """Make the missing parents of `path`. After the block, remove those that are empty."""
    missing = [parent for parent in path.parents if not parent.exists()]
    try:
        # The nearest parent is the first of `parents`, and can only be made last.
        for parent in reversed(missing):
            parent.mkdir(exist_ok=True)
        yield
    finally:
        for parent in missing:
            with suppress(OSError):  # it has content
                parent.rmdir()


def check_writable(out: Path) -> None:
    """Check, before long work, that a folder can be written at `out`. Nothing new is left there.

    First undo the end of a stopped run, as `recover` does. Then make the missing parents of `out` and a
    folder beside it, and remove them. Raise `UserError` if this fails, and if `out` is a mount point, which
    can't be replaced.
    """
    try:
        recover(out)
        with parents_made(_beside(resolved(out), "unfinished") / "file"):
            pass
    except OSError as error:
        raise _not_writable(out, error) from error


def refuse_other_files(out: Path, kind: str = "", marker: str = "", *, hidden: bool = True) -> None:
    """Raise `UserError` if something at `out` would be lost: a file, or a folder with entries.

    kind, marker: a folder with an entry named `marker` is a `kind`, and may be replaced. Without a marker,
        no folder with entries may.
    hidden: whether names that begin with a dot count as entries.
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
    """Return `out` as an absolute path without symbolic links. Raise `UserError` if links form a loop."""
    try:
        return out.resolve()
    except (OSError, RuntimeError) as error:  # RuntimeError up to Python 3.12
        raise UserError(f"{out} is in a loop of symbolic links. Name another path.") from error


def _not_writable(out: Path, error: OSError) -> UserError:
    return UserError(f"{out} can't be written: {error.strerror}. Choose another path.")


def recover(out: Path) -> None:
    """Move the folder at `out` back if a stopped run moved it away. Raise `UserError` for a mount point."""
    target = resolved(out)
    if target.is_mount():
        raise UserError(f"{out} is a mount point and can't be replaced. Choose a folder below it.")
    replaced = _beside(target, "replaced")
    if replaced.exists() and not target.exists():
        replaced.rename(target)


@contextmanager
def reporting_full_disk(out: Path) -> Iterator[None]:
    """Replace the `OSError` of a full disk in the block by a `UserError` that names `out`.

    A full quota and the maximum size of a file count too, and so does an error without a number, as NumPy
    raises it. Other errors pass.
    """
    try:
        yield
    except OSError as error:
        if error.errno and error.errno not in NO_ROOM:
            raise
        reason = error.strerror or "the disk is full"  # NumPy's errors have no number
        raise UserError(
            f"{out} can't be written: {reason}. Free some space, or choose another path."
        ) from error


def _beside(target: Path, purpose: str) -> Path:
    """Return the path `.NAME.PURPOSE` beside `target`."""
    return target.with_name(f".{target.name}.{purpose}")


def _lock(staging: Path, out: Path) -> int:
    """Lock the folder `staging`, and return the open descriptor. Closing it releases the lock.

    Raise `UserError`, which names `out`, if another run has the lock, or has replaced the folder in the
    meantime.
    """
    lock = os.open(staging, os.O_RDONLY)
    try:
        take_lock(lock, staging.parent)
        # The run that had the lock may have renamed its folder, which this descriptor then belongs to.
        if not staging.exists() or os.fstat(lock).st_ino != staging.stat().st_ino:
            raise BlockingIOError
    except BaseException as error:
        os.close(lock)
        if isinstance(error, BlockingIOError):
            busy = f"another run is writing {out} now. Wait for it, or choose another path."
            raise UserError(busy) from error
        raise
    return lock


def reach_disk(path: Path) -> None:
    """Wait until the content of a file, or the list of names in a folder, is safe from a power failure."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _swap(staging: Path, target: Path, replaced: Path) -> None:
    """Rename `target`, if it exists, to `replaced`, and `staging` to `target`. An error restores `target`."""
    # By an exchange, there is a folder at `target` at every moment.
    if target.exists() and exchanged(staging, target):
        staging.rename(replaced)
    else:
        if target.exists():
            target.rename(replaced)
        try:
            staging.rename(target)
        except BaseException:
            recover(target)
            raise
    reach_disk(target.parent)


def exchanged(folder: Path, other: Path) -> bool:
    """Exchange the names of two folders atomically. Return False, with no change, if the system can't."""
    names = os.fsencode(folder), os.fsencode(other)
    # Python has no function for this.
    library = ctypes.CDLL(None)
    try:
        if sys.platform == "darwin":
            code = library.renamex_np(*names, RENAME_EXCHANGE)
        else:
            code = library.renameat2(
                AT_WORKING_FOLDER, names[0], AT_WORKING_FOLDER, names[1], RENAME_EXCHANGE
            )
    except AttributeError:  # a C library from before 2018
        return False
    return bool(code == 0)


@contextmanager
def file_written_whole(path: Path) -> Iterator[BinaryIO]:
    """Yield a binary file that replaces `path` if the block ends without an error.

    After an error, `path` is unchanged, and nothing else is left.

    - The new file has the permissions of the old one.
    - It is compressed if its name, after symbolic links, ends in .gz.
    - A pipe or a device cannot be replaced, and is written to directly.

    Unfinished files of killed processes are removed first. Raise `UserError` if the file can't be created, or
    if the disk is full.
    """
    if path.exists() and not path.is_file():
        with reporting_full_disk(path), _opened(path, path) as raw, _compressed(raw, resolved(path)) as file:
            yield file
        return
    target = resolved(path)
    staging = target.with_name(f".{target.name}.{os.getpid()}.unfinished")
    _remove_unfinished(target)
    try:
        # An interrupt may come as soon as the file exists, so it is opened within the `try`.
        with reporting_full_disk(path), _opened(staging, path) as raw:
            with suppress(OSError):  # without locks, another process may remove the file
                fcntl.flock(raw, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if path.exists():
                os.fchmod(raw.fileno(), path.stat().st_mode)
            with _compressed(raw, target) as file:
                yield file
            raw.flush()
            os.fsync(raw.fileno())
        staging.replace(target)
        reach_disk(target.parent)
    except BaseException:
        with suppress(OSError):  # the file may not exist
            staging.unlink()
        raise


@contextmanager
def _compressed(raw: BinaryIO, target: Path) -> Iterator[BinaryIO]:
    """Yield a file that compresses into `raw` if the name of `target` ends in .gz. Else yield `raw`."""
    if target.suffix != ".gz":
        yield raw
        return
    # Without a name and a time, the same content always gives the same bytes.
    with gzip.GzipFile(filename="", fileobj=raw, mode="wb", mtime=0) as file:
        yield cast(BinaryIO, file)


def _remove_unfinished(target: Path) -> None:
    """Remove unfinished copies of `target` by killed processes. Running processes lock their copies."""
    pattern = re.compile(rf"\.{re.escape(target.name)}\.\d+\.unfinished")
    siblings = [*target.parent.iterdir()] if target.parent.is_dir() else []
    for leftover in [path for path in siblings if pattern.fullmatch(path.name)]:
        with suppress(OSError), leftover.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            leftover.unlink()


def _opened(staging: Path, path: Path) -> BinaryIO:
    """Return `staging`, open for writing. Raise `UserError` that names `path` if opening fails."""
    try:
        return staging.open("wb")
    except OSError as error:
        raise _not_writable(path, error) from error


def size_and_hash(path: Path) -> dict[str, Any]:
    """Return {"bytes": size, "sha256": hexadecimal digits} of a file, to check its content later."""
    return {"bytes": path.stat().st_size, "sha256": sha256_of(path)}


def unused(path: Path) -> Path:
    """Return the first of PATH.1, PATH.2 and so on that does not exist. PATH is `path`."""
    candidates = (path.with_name(f"{path.name}.{number}") for number in count(1))
    return next(candidate for candidate in candidates if not candidate.exists())


@contextmanager
def temporary_folder(prefix: str, parent: Path | None = None) -> Iterator[Path]:
    """Yield a new folder for temporary files, which is removed at the end of the block.

    Its name begins with `prefix`. It is in `parent`, or in the system's folder for temporary files. First
    remove folders with this prefix of killed processes, if they are over a minute old.
    """
    for leftover in (parent or Path(tempfile.gettempdir())).glob(f"{prefix}*"):
        with suppress(OSError):  # other users' folders can't be opened, those in use are locked
            _remove_unlocked(leftover)
    with tempfile.TemporaryDirectory(prefix=prefix, dir=parent) as folder:
        lock = os.open(folder, os.O_RDONLY)
        try:
            with suppress(OSError):  # without locks, the folder stays if this process is killed
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield Path(folder)
        finally:
            os.close(lock)


def _remove_unlocked(folder: Path) -> None:
    """Remove a folder that a killed process left. A folder that was changed in the last `SECONDS_TO_LOCK`
    stays.

    Raise `OSError` if the folder is in use, which its lock shows, or can't be opened.
    """
    lock = os.open(folder, os.O_RDONLY | os.O_NOFOLLOW | os.O_DIRECTORY)
    try:
        # A younger one is not locked even for a moment. Its owner could be about to lock it.
        if time.time() - os.fstat(lock).st_mtime > SECONDS_TO_LOCK:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder)
    finally:
        os.close(lock)
