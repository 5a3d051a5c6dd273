"""Finds kernels that Numba compiles, if it is installed, and stores compiled code in files."""

import hashlib
import os
import shutil
import warnings
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType
from uuid import uuid4

from nmt_cli.errors import Caution, Notice

PACKAGE = Path(__file__).parents[2]
SOURCES = "**/compiled.py", "runtime/kernels/torch_private.py"
"""All files that are compiled together. They import no other module of this package."""

PREFIX, FOLDERS = "nmt-kernels-", 8
"""The beginning of the names of folders with compiled code, and the maximum number of them in one folder."""

DIGEST_SIZE = hashlib.sha256().digest_size


@cache
def compiled_kernels(room: str) -> ModuleType | None:
    """Import and return `compiled.py` of a subpackage, or None without Numba. The first call compiles."""
    try:
        return import_module(f"nmt_cli.{room}.compiled")
    except ImportError:
        return None
    except Exception as error:
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        warnings.warn(f"computing without CPU kernels, which is slower ({reason})", Caution, stacklevel=2)
        return None


@cache
def announce_compiling() -> None:
    """Say that compiling takes a while, once in a process."""
    warnings.warn(
        "Compiling CPU kernels, once after an installation: up to a minute ...", Notice, stacklevel=2
    )


class KernelFiles:
    """Files of compiled code, in a folder that is named by a hash of all sources and of the environment."""

    def __init__(self, chosen: str, environment: object) -> None:
        """Find or make a folder in `chosen` if not empty, in the package, or in the user's cache."""
        digest = hashlib.sha256(repr(environment).encode())
        for path in sorted(path for pattern in SOURCES for path in PACKAGE.glob(pattern)):
            digest.update(hashlib.sha256(path.read_bytes()).digest())
        # Unlike Path, it raises nothing if there is no home.
        cached = os.path.expanduser(os.environ.get("XDG_CACHE_HOME") or "~/.cache")  # noqa: PTH111
        roots = chosen, PACKAGE / "runtime" / "kernels" / "__pycache__", cached if cached[:1] == "/" else ""
        folders = [Path(root, f"{PREFIX}{digest.hexdigest()[:16]}") for root in roots if root]
        found = next(
            (folder for usable in (_is_trusted, _make) for folder in folders if usable(folder)), None
        )
        if not found:
            raise OSError("no folder for compiled code can be written; set NUMBA_CACHE_DIR to one")
        self._folder = found
        with suppress(OSError):
            os.utime(self._folder)  # it is in use: `_make` removes folders that are not

    def read(self, name: str) -> bytes | None:
        """Return the content of a file, or None if it is missing or damaged."""
        with suppress(OSError):
            content = (self._folder / name).read_bytes()
            if hashlib.sha256(content[DIGEST_SIZE:]).digest() == content[:DIGEST_SIZE]:
                return content[DIGEST_SIZE:]
        return None

    def write(self, name: str, content: bytes) -> None:
        """Write a file, whole or not at all. Leave it out if there is no space, or no permission."""
        staging = self._folder / f"{name}.{uuid4().hex}"
        with suppress(OSError):
            try:
                staging.write_bytes(hashlib.sha256(content).digest() + content)
                staging.replace(self._folder / name)
            finally:
                staging.unlink(missing_ok=True)


def _is_trusted(folder: Path) -> bool:
    """Return whether only the user or root can write to this folder: loading compiled code runs it."""
    with suppress(OSError):
        status = folder.lstat()  # the owner of a link could change its target after this check
        return status.st_uid in (0, os.getuid()) and not status.st_mode & 0o022
    return False


def _make(folder: Path) -> bool:
    """Make a folder, and return whether it can be used. Of its kind, remove the least recently used."""
    with suppress(OSError):
        folder.mkdir(mode=0o755, parents=True, exist_ok=True)
        found = sorted(folder.parent.glob(f"{PREFIX}*"), key=lambda path: path.stat().st_mtime)
        for old in found[:-FOLDERS]:
            shutil.rmtree(old, ignore_errors=True)
    return _is_trusted(folder) and os.access(folder, os.W_OK)
