"""Hashes of files."""

import hashlib
import threading
from contextlib import suppress
from pathlib import Path

AT_A_TIME = 1 << 24
"""Bytes; for each such part a thread waits twice for others that run Python, some milliseconds."""


def sha256_of(path: Path) -> str:
    """The SHA-256 of a file's bytes, in hexadecimal digits."""
    ahead = _AHEAD.pop(path, None)
    return (ahead and ahead.digest()) or _sha256_of(path)


def hash_ahead(path: Path) -> None:
    """Begin to hash the file in a thread, if there is one at `path`; `sha256_of` then waits for that."""
    if path.is_file():
        _AHEAD[path] = _Ahead(path)


def _sha256_of(path: Path) -> str:
    digest, part = hashlib.sha256(), memoryview(bytearray(AT_A_TIME))
    with path.open("rb", buffering=0) as file:
        while size := file.readinto(part):
            digest.update(part[:size])
    return digest.hexdigest()


class _Ahead:
    def __init__(self, path: Path) -> None:
        self._path, self._file, self._digest = path, _file(path), ""
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        with suppress(OSError):  # who asks for the hash is told
            self._digest = _sha256_of(self._path)

    def digest(self) -> str:
        """Empty where there is another file by now: checkpoints come and go while a run is trained."""
        self._thread.join()
        with suppress(OSError):
            return self._digest if _file(self._path) == self._file else ""
        return ""


def _file(path: Path) -> tuple[int, ...]:
    """By what a file, as it is now, is told from others at the same path."""
    found = path.stat()
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


_AHEAD: dict[Path, _Ahead] = {}
"""What `sha256_of` has not been asked for yet."""
