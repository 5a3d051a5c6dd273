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

from nmt_cli.errors import Caution

PACKAGE = Path(__file__).parents[1]
SOURCES = "**/compiled.py", "machine/torch_private.py"
"""All that is compiled together: no other module of this package may be imported there."""

PREFIX, FOLDERS = "nmt-kernels-", 8
"""Of folders with compiled code: the beginning of their names, and the maximum number in one place."""

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


class KernelFiles:
    """Files of compiled code. The names of their folders depend on all sources and on the environment."""

    def __init__(self, chosen: str, environment: object) -> None:
        """Find folders to read, and one to write: in `chosen` if any, the package, or the user's cache."""
        home = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "nmt"
        roots = [*([Path(chosen)] if chosen else []), PACKAGE / "machine" / "__pycache__", home]
        name = PREFIX + _fingerprint(environment)
        folders = [root / name for root in roots if root.is_absolute() or root != home]
        self._folders = [folder for folder in folders if _is_trusted(folder)]
        if not any(os.access(folder, os.W_OK) for folder in self._folders):
            self._folders += next(([folder] for folder in folders if _make(folder)), [])
        if not self._folders:
            raise OSError("no folder for compiled code can be written; set NUMBA_CACHE_DIR to one")

    def read(self, name: str) -> bytes | None:
        """Return the content of a file, or None if no folder has it undamaged."""
        for folder in self._folders:
            with suppress(OSError):
                content = memoryview((folder / name).read_bytes())
                if hashlib.sha256(content[DIGEST_SIZE:]).digest() == content[:DIGEST_SIZE]:
                    return bytes(content[DIGEST_SIZE:])
        return None

    def write(self, name: str, content: bytes) -> None:
        """Write a file, whole or not at all, in the first folder that takes it, if one does."""
        for folder in self._folders:
            staging = folder / f"{name}.{uuid4().hex}"
            try:
                staging.write_bytes(hashlib.sha256(content).digest() + content)
                staging.replace(folder / name)
                return
            except OSError:
                with suppress(OSError):
                    staging.unlink()


def _fingerprint(environment: object) -> str:
    digest = hashlib.sha256(repr(environment).encode())
    for path in sorted(path for pattern in SOURCES for path in PACKAGE.glob(pattern)):
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:16]


def _is_trusted(folder: Path) -> bool:
    """Whether there is a folder, of this user, root, or the owner of the package. Its code will be run."""
    with suppress(OSError):
        if folder.stat().st_uid in (os.getuid(), 0, PACKAGE.stat().st_uid):
            with suppress(OSError):
                os.utime(folder)  # it is in use: `_make` removes those that are not
            return True
    return False


def _make(folder: Path) -> bool:
    """Make a folder; return whether it can be written. Of its kind, the least recently used are removed."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return False
    with suppress(OSError):  # another process removes them
        found = sorted(folder.parent.glob(f"{PREFIX}*"), key=lambda path: path.stat().st_mtime)
        for old in found[:-FOLDERS]:
            shutil.rmtree(old, ignore_errors=True)
    return os.access(folder, os.W_OK)
