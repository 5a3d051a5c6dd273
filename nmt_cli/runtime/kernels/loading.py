"""Import the kernels that Numba compiles, and store compiled code in files."""

import fcntl
import hashlib
import os
import shutil
import stat
import time
import warnings
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType

from nmt_cli.errors import Caution, Notice, UserError
from nmt_cli.runtime.atomic import file_written_whole

PACKAGE = Path(__file__).parents[2]
SOURCES = (
    "**/cpu_*.py",
    "attention/dropout_hash.py",
    "data/preprocessing/aligner.py",
    "**/compiled.py",
    "engine/kernels/*.py",
)
"""All files that are compiled together."""

PREFIX, MAX_FOLDERS = "nmt-kernels-", 8
"""The beginning of the names of folders with compiled code, and the maximum number of them in one folder."""

CLAIM_SECONDS, POLL_SECONDS = 60.0, 0.02
"""Longest wait for a claim of another process, which may be stopped, and the time between two attempts."""

DIGEST_SIZE = hashlib.sha256().digest_size


@cache
def compiled_kernels(name: str) -> ModuleType | None:
    """Import and return a module of kernels, such as "loss.cpu_row_losses". The first call may compile it.

    Return None without Numba. On other errors, warn that computing is slower and return None.
    """
    try:
        return import_module(f"nmt_cli.{name}")
    except ImportError:
        return None
    except Exception as error:
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        warnings.warn(f"computing without CPU kernels, which is slower ({reason})", Caution, stacklevel=2)
        return None


@cache
def announce_compiling() -> None:
    """Issue a `Notice`, once per process, that compiling takes up to a minute."""
    warnings.warn(
        "Compiling CPU kernels, once after an installation: up to a minute ...", Notice, stacklevel=2
    )


def announced() -> bool:
    """Return whether this process has compiled kernels, or waited for another one that compiles them."""
    return bool(announce_compiling.cache_info().currsize)


def digest_of_sources(environment: object, patterns: Sequence[str]) -> str:
    """Return a hash, in 16 digits, of `environment` and of the package's files that match `patterns`."""
    digest = hashlib.sha256(repr(environment).encode())
    for path in sorted(path for pattern in patterns for path in PACKAGE.glob(pattern)):
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:16]


def user_cache() -> str:
    """Return the folder XDG_CACHE_HOME, by default ~/.cache, or "" if there is no home."""
    # Unlike Path, it raises nothing if there is no home.
    folder = os.path.expanduser(os.environ.get("XDG_CACHE_HOME") or "~/.cache")  # noqa: PTH111
    return folder if folder[:1] == "/" else ""


class KernelFiles:
    """Files of compiled code in one folder, named by a hash of all sources and of the environment."""

    def __init__(self, chosen: str, environment: object) -> None:
        """Find or create the folder for compiled code.

        It is in `chosen`, in the package or in the user's cache. The first of them with a folder that can be
        trusted is taken, and otherwise the first in which one can be created. The folder's name depends on
        the sources and on `environment`, so that changed code is compiled again.

        Raise `OSError` with reasons and remedies if no folder can be used.
        """
        own_cache = PACKAGE / "runtime" / "kernels" / "__pycache__"
        name = f"{PREFIX}{digest_of_sources(environment, SOURCES)}"
        folders = [Path(root, name) for root in (chosen, own_cache, user_cache()) if root]
        usable = (
            folder for problem in (_problem, _problem_created) for folder in folders if not problem(folder)
        )
        folder = next(usable, None)
        if not folder:
            problems = "; ".join(f"{folder} {_problem_created(folder)}" for folder in folders)
            raise OSError(
                f"compiled code can't be stored: {problems}. Set NUMBA_CACHE_DIR to another folder."
            )
        self._folder = folder
        self._claims: int | None = None
        with suppress(OSError):
            os.utime(self._folder)  # `_problem_created` removes the least recently used folders

    def read(self, name: str) -> bytes | None:
        """Return the content of a file, or None if it is missing or its checksum does not match."""
        with suppress(OSError):
            content = (self._folder / name).read_bytes()
            if hashlib.sha256(content[DIGEST_SIZE:]).digest() == content[:DIGEST_SIZE]:
                return content[DIGEST_SIZE:]
        return None

    def write(self, name: str, content: bytes) -> None:
        """Write a file with a checksum, whole or not at all. Ignore errors, such as a full disk."""
        with suppress(OSError, UserError), file_written_whole(self._folder / name) as file:
            file.write(hashlib.sha256(content).digest() + content)

    def claim(self, name: str, seconds: float = CLAIM_SECONDS) -> bool:
        """Claim `name` for this process, until `release` or the end of the process. Return whether it is
        claimed.

        If another process has claimed it, wait up to `seconds`. On a file system without locks, the result is
        False at once.
        """
        deadline = time.monotonic() + seconds
        try:
            if self._claims is None:
                self._claims = os.open(self._folder / "claims", os.O_RDWR | os.O_CREAT, 0o644)
            while True:
                # Other errors end the wait. On a file system without locks, each of 58 kernels would wait for
                # a minute.
                with suppress(BlockingIOError, PermissionError):  # the errors of a lock of another process
                    fcntl.lockf(self._claims, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, _offset(name))
                    return True
                if time.monotonic() > deadline:
                    return False
                time.sleep(POLL_SECONDS)
        except OSError:  # the folder can't be written, or its file system has no locks
            return False

    def release(self, name: str = "") -> None:
        """Release the claim of a name, by default all claims of this process."""
        if self._claims is not None:
            with suppress(OSError):
                fcntl.lockf(self._claims, fcntl.LOCK_UN, *((1, _offset(name)) if name else ()))


def _offset(name: str) -> int:
    """Return the byte of the file of claims whose lock is the claim of a name."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:7])


def _problem(folder: Path, missing: str = "No such folder") -> str:
    """Return why compiled code in `folder` can't be trusted, with a remedy, or "" if it can. Loading code
    runs it, so only the user and root may be able to write there.

    missing: the reason to name if there is no folder.
    """
    try:
        status = folder.lstat()  # the owner of a link could change its target after this check
    except OSError:
        return f"can't be created ({missing}): allow writing to {folder.parent}"
    if not stat.S_ISDIR(status.st_mode):
        return "is not a folder: remove it"
    if status.st_uid not in (0, os.getuid()):
        return "belongs to another user: remove it"
    return "can be changed by other users: remove it" if status.st_mode & 0o022 else ""


def _problem_created(folder: Path) -> str:
    """Create a folder if it is missing. Return why it can't be used and the remedy, or "" if it can.

    Remove the least recently used folders beside it, so that at most `MAX_FOLDERS` remain.
    """
    reason = ""
    try:
        folder.mkdir(mode=0o755, parents=True, exist_ok=True)
        by_use = sorted(folder.parent.glob(f"{PREFIX}*"), key=lambda path: path.stat().st_mtime)
        for old in by_use[:-MAX_FOLDERS]:
            shutil.rmtree(old, ignore_errors=True)
    except OSError as error:
        reason = error.strerror or str(error)
    writable = os.access(folder, os.W_OK)
    return _problem(folder, reason) or ("" if writable else "can't be written: allow writing to it")
