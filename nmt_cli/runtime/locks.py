"""Locks on folders, held by one process at a time; the system frees them when the process ends."""

import errno
import fcntl
import os
import warnings
from pathlib import Path

from nmt_cli.errors import Caution

LACKING = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS)


def take_lock(descriptor: int, folder: Path) -> None:
    """Lock an open folder; `BlockingIOError` if another process holds the lock.

    Where the file system has no locks, as some network ones, it only warns.
    """
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno not in LACKING:
            raise
        warnings.warn(
            f"the file system of {folder} has no locks ({error.strerror}), so nothing keeps two runs from "
            "writing there at once; take care that only one does.",
            Caution,
            stacklevel=2,
        )


def is_locked(folder: Path) -> bool:
    """Whether a process holds the lock on a folder, or that can't be told; not where there is no folder."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False
