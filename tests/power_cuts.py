"""All states of a folder that a kill or a power cut during writing could leave."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

State = dict[str, bytes | str | None]
"""By path: the content of a file, the target of a link, or None for a folder."""

CHANGES = ("fsync", "mkdir", "rename", "replace", "rmdir", "symlink", "unlink")


class Recording:
    """Records the states of a folder while `work` writes in it.

    Names change in the order of the calls, as in file systems with a journal. After a kill, a file contains
    all written bytes. After a power cut, it contains the bytes at the last fsync.
    """

    def __init__(self, folder: Path, work: Callable[[], object]) -> None:
        self.folder = folder
        self.states: list[State] = []
        self._safe: dict[int, bytes] = {}
        for path in self._files():
            self._safe[path.stat().st_ino] = path.read_bytes()
        with pytest.MonkeyPatch.context() as patch:
            for name in CHANGES:
                patch.setattr(os, name, self._watched(name, getattr(os, name)))
            work()
        self._look()

    def kept(self, folder: Path) -> Iterator[Path]:
        """Yield each state as a new folder below `folder`."""
        for number, state in enumerate(self.states):
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

    def _watched(self, name: str, change: Callable[..., Any]) -> Callable[..., Any]:
        def watched(*arguments: Any, **options: Any) -> Any:
            self._look()
            if name == "fsync":
                self._reach_disk(arguments[0])
            done = change(*arguments, **options)
            there = {path.stat().st_ino for path in self._files()}
            self._safe = {number: content for number, content in self._safe.items() if number in there}
            self._look()
            return done

        return watched

    def _reach_disk(self, descriptor: int) -> None:
        path = Path(f"/proc/self/fd/{descriptor}")
        if path.is_file():
            self._safe[os.fstat(descriptor).st_ino] = path.read_bytes()

    def _look(self) -> None:
        for safe_only in (False, True):
            state = {
                str(path.relative_to(self.folder)): self._content(path, safe_only) for path in self._all()
            }
            if state not in self.states:
                self.states.append(state)

    def _content(self, path: Path, safe_only: bool) -> bytes | str | None:
        if path.is_symlink():
            return str(path.readlink())
        if path.is_dir():
            return None
        return self._safe.get(path.stat().st_ino, b"") if safe_only else path.read_bytes()

    def _all(self) -> list[Path]:
        return [*self.folder.rglob("*")]

    def _files(self) -> list[Path]:
        return [path for path in self._all() if path.is_file() and not path.is_symlink()]
