"""Guards the dataset of a training run. If the dataset is damaged or changes, nothing more is saved."""

import hashlib
import os
import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from contextlib import ExitStack
from operator import attrgetter
from typing import Any

from nmt_cli.data.dataset import Dataset, check_sizes, read_manifest
from nmt_cli.data.verify import verify
from nmt_cli.errors import UserError

POLL_SECONDS = 0.1
LONG_WAIT = 30
"""Number of polls after which the user learns that the verification is still running."""

RUNNING = "running"

TIMES = attrgetter("st_mtime_ns", "st_ctime_ns")
"""The modification time of a file, which programs can set, and its change time, which they cannot."""


class DatasetGuard(ExitStack):
    """Verifies an open dataset in the background, and notices later changes to its files. All files stay
    open, so that checks work even after the folder is moved or removed."""

    def __init__(
        self,
        dataset: Dataset,
        gather: Callable[[Any], list[Any]],
        note: Callable[[str], None],
        *,
        verifies: bool = True,
    ) -> None:
        """Open all files. If `verifies`, which only one rank per machine sets, verify them in a thread.
        `gather` takes this rank's value and returns all ranks' values. `note` shows a message."""
        super().__init__()
        self._folder, self._written = dataset.folder, dataset.manifest["files"]
        self._gather, self._note = gather, note
        self._files: dict[str, int] = {}
        for name in self._written:
            self._files[name] = os.open(self._folder / name, os.O_RDONLY)
            self.callback(os.close, self._files[name])
        self._times = {name: TIMES(os.fstat(file)) for name, file in self._files.items()}
        self._verified: Future[None] = Future()
        if verifies:
            # Hashing a large dataset takes minutes, and only the first checkpoint needs the result.
            threading.Thread(target=self._verify, args=(dataset,), name="verify", daemon=True).start()
        else:
            self._verified.set_result(None)

    def check_quickly(self) -> None:
        """Raise `UserError` for a file of another size, and the error of a failed verification. Neither wait
        nor read files. Reading a mapped file past its new end would kill the process."""
        if self._verified.done():
            self._verified.result()
        for name, file in self._files.items():
            if os.fstat(file).st_size != self._written[name]["bytes"]:
                raise self._changed(name)

    def check_contents(self) -> None:
        """Wait for the verification and raise its error, if any. Hash each file whose times changed since the
        last check. Raise `UserError` for a file of another size or hash."""
        self._verified.result()
        self.check_quickly()
        for name, file in self._files.items():
            if (times := TIMES(os.fstat(file))) == self._times[name]:
                continue
            with os.fdopen(os.dup(file), "rb") as content:
                # The duplicate shares its position with `file`.
                content.seek(0)
                digest = hashlib.file_digest(content, "sha256").hexdigest()
            if digest != self._written[name]["sha256"]:
                raise self._changed(name)
            self._times[name] = times

    def check_all_ranks(self) -> None:
        """Wait for the verification on all ranks, and check the contents on each rank. All ranks must call
        this. All raise the first `UserError` of any rank. Call `note` if this takes over 3 seconds."""
        polls = 0
        # All ranks see the same statuses, so they leave this loop together.
        while RUNNING in (statuses := self._gather(self._status())):
            polls += 1
            if polls == LONG_WAIT:
                self._note("the dataset is still being verified, and nothing is saved before that ends")
            wait([self._verified], POLL_SECONDS)
        if problem := next(filter(None, statuses), None):
            raise UserError(problem)

    def is_gone(self) -> bool:
        """Return whether any rank finds the folder missing, damaged or replaced. All ranks must call this."""
        return any(self._gather(self._is_gone_here()))

    def _status(self) -> str:
        """Return `RUNNING` during verification, then check contents. Return the problem, or "" for none."""
        if not self._verified.done():
            return RUNNING
        try:
            self.check_contents()
        except UserError as error:
            return str(error)
        return ""

    def _is_gone_here(self) -> bool:
        """Return whether this rank finds the folder missing, damaged or with other files in its manifest."""
        try:
            manifest = read_manifest(self._folder)
            check_sizes(self._folder, manifest)
        except (UserError, OSError):
            return True
        return bool(manifest["files"] != self._written)

    def _verify(self, dataset: Dataset) -> None:
        """Verify all contents of `dataset`. Store success or the error, of any type, in `_verified`."""
        try:
            verify(dataset)
            self._verified.set_result(None)
        except BaseException as error:
            self._verified.set_exception(error)

    def _changed(self, name: str) -> UserError:
        return UserError(
            f"{self._folder / name} was changed while it was in use. Restore it, then run the same command "
            "again to resume from the last checkpoint."
        )
