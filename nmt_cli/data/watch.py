"""The files of a dataset in use, held open: whatever becomes of their folder, changes in them are noticed."""

import hashlib
import os
from contextlib import ExitStack
from operator import attrgetter
from pathlib import Path
from typing import Self

from nmt_cli.data.dataset import Dataset, check_sizes, read_manifest
from nmt_cli.errors import UserError

TIMES = attrgetter("st_mtime_ns", "st_ctime_ns")
"""When the content of a file changed, which programs can set, and when anything of it did."""


class Watch:
    """Compares the files of an open dataset with what they were when this began."""

    def __init__(self, dataset: Dataset) -> None:
        self._folder, self._written = dataset.folder, dataset.manifest["files"]
        self._open = ExitStack()
        self._files: dict[Path, int] = {}
        for name in self._written:
            path = self._folder / name
            self._files[path] = os.open(path, os.O_RDONLY)
            self._open.callback(os.close, self._files[path])
        self._times = {path: TIMES(os.fstat(file)) for path, file in self._files.items()}

    def refuse_cut(self) -> None:
        """Say that a file has another length; to read on where a mapped one was ends the process at once."""
        for path, file in self._files.items():
            if os.fstat(file).st_size != self._written[str(path.relative_to(self._folder))]["bytes"]:
                raise _changed(path)

    def refuse_changed(self) -> None:
        """Raise `UserError` for a file whose content changed; a change of its times alone is allowed."""
        self.refuse_cut()
        for path, file in self._files.items():
            if (now := TIMES(os.fstat(file))) == self._times[path]:
                continue
            with os.fdopen(os.dup(file), "rb") as content:
                # The copy can be closed without ours, but the two share one position.
                content.seek(0)
                found = hashlib.file_digest(content, "sha256").hexdigest()
            if found != self._written[str(path.relative_to(self._folder))].get("sha256"):
                raise _changed(path)
            self._times[path] = now

    def gone(self) -> bool:
        """Whether the folder was moved, removed or replaced by another dataset; what is mapped stays."""
        try:
            manifest = read_manifest(self._folder)
            check_sizes(self._folder, manifest)
        except (UserError, OSError):
            return True
        return bool(manifest["files"] != self._written)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()


def _changed(path: Path) -> UserError:
    return UserError(
        f"{path} was changed while it was in use, so that nothing is saved any more; put it back as it was, "
        "and the same command goes on from the last checkpoint."
    )
