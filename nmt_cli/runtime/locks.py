"""Locks on folders. One process at a time holds a lock, and the system releases it when the process ends."""

import errno
import fcntl
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from nmt_cli.errors import Caution

UNSUPPORTED = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS)
"""Error numbers of file systems without locks, or without links."""


def take_lock(descriptor: int, folder: Path) -> None:
    """Lock a folder by its open `descriptor`, without waiting. Closing the descriptor unlocks it.

    Raise `BlockingIOError` if another process holds the lock. If the file system has no locks, only give a
    `Caution` that names `folder`. Raise other `OSError`s.
    """
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno not in UNSUPPORTED:
            raise
        warnings.warn(
            f"the file system of {folder} has no locks ({error.strerror}), so nothing keeps two runs from "
            "writing there at once. Take care that only one does.",
            Caution,
            stacklevel=2,
        )


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the lock on a folder in the block, and wait until no other process or thread holds it. On a file
    system without locks, the block runs at once."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        except OSError as error:
            if error.errno not in UNSUPPORTED:
                raise
        yield
    finally:
        os.close(descriptor)


def is_locked(folder: Path) -> bool:
    """Return whether any process, including this one, holds the lock on a folder.

    True is also returned if the folder can't be locked, and False if it does not exist.
    """
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        # This also releases the lock, if it was free until now.
        os.close(descriptor)
    return False
