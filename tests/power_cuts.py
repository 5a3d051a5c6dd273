"""All states that a kill or a power cut can leave while a folder is written."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

State = dict[str, bytes | str | None]
"""By path: the content of a file, the target of a link, or None for a folder."""

CHANGES = ("fsync", "mkdir", "rename", "replace", "rmdir", "symlink", "unlink")


class Recording:
    """The states of a folder while the function `work` writes in it.

    Names change in the order of the calls, as in file systems with a journal. After a kill, a file contains
    all written bytes. After a power cut, it contains the bytes at the last fsync.
    """

    def __init__(self, folder: Path, work: Callable[[], object]) -> None:
        self.folder = folder
        self._states: list[State] = []
        self._on_disk: dict[int, bytes] = {}
        for path in self._files():
            self._on_disk[path.stat().st_ino] = path.read_bytes()
        with pytest.MonkeyPatch.context() as patch:
            for name in CHANGES:
                patch.setattr(os, name, self._recorded(name, getattr(os, name)))
            work()
        self._record()

    def states(self, folder: Path) -> Iterator[Path]:
        """Write each different state into a new folder below `folder`, and yield the path of that folder."""
        for number, state in enumerate(self._states):
            snapshot = folder / str(number)
            snapshot.mkdir(parents=True)
            for name, content in sorted(state.items()):
                if isinstance(content, bytes):
                    (snapshot / name).write_bytes(content)
                elif content is None:
                    (snapshot / name).mkdir()
                else:
                    (snapshot / name).symlink_to(content)
            yield snapshot

    def _recorded(self, name: str, change: Callable[..., Any]) -> Callable[..., Any]:
        """Return `change`, the function `name` of os, with a record of the states before and after a call."""

        def recorded(*arguments: Any, **options: Any) -> Any:
            self._record()
            if name == "fsync":
                self._sync(arguments[0])
            result = change(*arguments, **options)
            inodes = {path.stat().st_ino for path in self._files()}
            self._on_disk = {inode: content for inode, content in self._on_disk.items() if inode in inodes}
            self._record()
            return result

        return recorded

    def _sync(self, descriptor: int) -> None:
        """Remember that the bytes of an open file are on the disk."""
        path = Path(f"/proc/self/fd/{descriptor}")
        if path.is_file():
            self._on_disk[os.fstat(descriptor).st_ino] = path.read_bytes()

    def _record(self) -> None:
        """Add the states after a kill and after a power cut at this moment, if they are new."""
        for on_disk in (False, True):
            state = {str(path.relative_to(self.folder)): self._content(path, on_disk) for path in self._all()}
            if state not in self._states:
                self._states.append(state)

    def _content(self, path: Path, on_disk: bool) -> bytes | str | None:
        """Return the value of a path in a state. `on_disk` leaves out bytes that are not on the disk."""
        if path.is_symlink():
            return str(path.readlink())
        if path.is_dir():
            return None
        return self._on_disk.get(path.stat().st_ino, b"") if on_disk else path.read_bytes()

    def _all(self) -> list[Path]:
        return [*self.folder.rglob("*")]

    def _files(self) -> list[Path]:
        return [path for path in self._all() if path.is_file() and not path.is_symlink()]
