"""Translated files, in memory until clients fetch them."""

import secrets
import time
from dataclasses import dataclass, field

MAX_FILES = 100
"""Maximum number of files. A further one replaces the oldest."""

MAX_SECONDS = 600
"""Maximum age of a file, in seconds."""


@dataclass(slots=True)
class Files:
    """Translated files by name. They end with the process."""

    _files: dict[str, tuple[float, bytes]] = field(default_factory=dict)
    """The time of `time.monotonic` at which each file ends, and its content. The oldest is first."""

    def add(self, content: bytes, ending: str) -> str:
        """Store a file. Return its name, which nobody can guess and which has the `ending`."""
        name = f"{secrets.token_hex(16)}{ending}"
        self._drop(MAX_FILES - 1)
        self._files[name] = time.monotonic() + MAX_SECONDS, content
        return name

    def get(self, name: str) -> bytes | None:
        """Return the content of a file, or None if there is none with this name or it is too old."""
        self._drop(MAX_FILES)
        _, content = self._files.get(name, (0, None))
        return content

    def _drop(self, maximum: int) -> None:
        """Forget files that are too old, and the oldest ones beyond `maximum` files."""
        now = time.monotonic()
        current = [(name, file) for name, file in self._files.items() if file[0] > now]
        self._files = dict(current[-maximum:])
