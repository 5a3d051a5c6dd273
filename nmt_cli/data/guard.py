"""Verifies a dataset, and guards it during training. If it is damaged or changes, nothing more is saved."""

import hashlib
import os
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future, wait
from contextlib import ExitStack
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np

from nmt_cli.data.dataset import (
    LINKS,
    TOKENIZERS,
    WORD_LINKS,
    Dataset,
    Sentences,
    check_sizes,
    damaged,
    read_manifest,
)
from nmt_cli.errors import UserError
from nmt_cli.runtime.hashes import sha256_of
from nmt_cli.text.tokenizer import SIDES
from nmt_cli.text.tokenizers import load_tokenizers
from nmt_cli.text.vocabulary import Vocabulary

AT_ONCE = 1 << 20
"""Values that are checked at once. A mapped array may be larger than the memory."""

POLL_SECONDS = 0.1
LONG_WAIT = 30
"""Number of polls after which the user learns that the verification is still running."""

RUNNING = "running"

TIMES = attrgetter("st_mtime_ns", "st_ctime_ns")
"""The modification time of a file, which programs can set, and its change time, which they cannot."""


def verify(dataset: Dataset) -> None:
    """Read a dataset whole. Raise `UserError` for the first wrong hash, missing end token, invalid token, or
    offsets that do not increase. Also raise it for sides of unequal length."""
    check_hashes(dataset.folder, dataset.manifest)
    tokenizers = load_tokenizers(dataset.folder / TOKENIZERS)
    for name, split in dataset.splits.items():
        for side, sentences in zip(SIDES, (split.source, split.target), strict=True):
            _check_arrays(sentences, dataset.folder / f"{name}.{side}", tokenizers.side(side).vocabulary)
        if len(split.source) != len(split.target):
            counts = f"{len(split.source):,} source sentences, but {len(split.target):,} target sentences"
            raise damaged(dataset.folder, f"is damaged: {name} has {counts}")
        for kind, links in ((LINKS, split.links), (WORD_LINKS, split.word_links)):
            if links:
                _check_arrays(links, dataset.folder / f"{name}.{kind}")


def check_hashes(folder: Path, manifest: Mapping[str, Any]) -> None:
    """Raise `UserError` for the first file in the manifest whose SHA-256 differs from its entry."""
    for name, file in manifest["files"].items():
        if sha256_of(folder / name) != file["sha256"]:
            raise damaged(folder / name, "was changed: its SHA-256 differs from the manifest")


def _check_arrays(sentences: Sentences, prefix: Path, vocabulary: Vocabulary | None = None) -> None:
    """Raise `UserError` for the first problem of the two files of one side of a split, or of its links, which
    have no vocabulary. Their names begin with `prefix`, FOLDER/SPLIT.SIDE."""
    tokens_file, offsets_file = Path(f"{prefix}.tokens.npy"), Path(f"{prefix}.offsets.npy")
    tokens, offsets = np.asarray(sentences.tokens), np.asarray(sentences.offsets)
    if offsets[0] != 0 or offsets[-1] != len(tokens):
        limits = f"{offsets[0]:,} to {offsets[-1]:,}"
        raise damaged(offsets_file, f"ranges from {limits}, but there are {len(tokens):,} tokens")
    for start in range(0, len(offsets) - 1, AT_ONCE):
        # Each sentence has at least its end token, so equal offsets are wrong too.
        part = offsets[start : start + AT_ONCE + 1]
        increases = part[1:] >= part[:-1] + (vocabulary is not None)
        if not increases.all():
            raise damaged(offsets_file, f"does not increase at sentence {start + np.argmin(increases):,}")
    if vocabulary is None:
        return
    # All offsets increase, so they are all within the tokens.
    for start in range(0, len(offsets) - 1, AT_ONCE):
        ended = tokens[offsets[start + 1 : start + AT_ONCE + 1] - 1] == vocabulary.end
        if not vocabulary.bare and not ended.all():
            raise damaged(tokens_file, f"has no end token after sentence {start + np.argmin(ended):,}")
    for start in range(0, len(tokens), AT_ONCE):
        if (highest := int(tokens[start : start + AT_ONCE].max())) >= len(vocabulary):
            entries = f"but the vocabulary has {len(vocabulary):,} entries"
            raise damaged(tokens_file, f"has token {highest:,}, {entries}")


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

    def check_contents(self, seconds: float | None = None) -> None:
        """Wait for the verification, at most `seconds`, and raise its error, if any. Hash each file whose
        times changed since the last check. Raise `UserError` for a file of another size or hash."""
        wait([self._verified], seconds)
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
        try:
            manifest = read_manifest(self._folder)
            check_sizes(self._folder, manifest)
            is_gone = manifest["files"] != self._written
        except (UserError, OSError):
            is_gone = True
        return any(self._gather(is_gone))

    def _verify(self, dataset: Dataset) -> None:
        """Verify all contents of `dataset`. Store success or the error, of any type, in `_verified`."""
        try:
            verify(dataset)
            self._verified.set_result(None)
        except BaseException as error:
            self._verified.set_exception(error)

    def _status(self) -> str:
        """Return `RUNNING` during verification, then check contents. Return the problem, or "" for none."""
        if not self._verified.done():
            return RUNNING
        try:
            self.check_contents()
        except UserError as error:
            return error.message
        return ""

    def _changed(self, name: str) -> UserError:
        return UserError(
            f"{self._folder / name} was changed while it was in use. Restore it, then run the same command "
            "again to resume from the last checkpoint."
        )
