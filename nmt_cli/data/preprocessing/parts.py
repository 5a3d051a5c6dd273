"""The work folder of a `preprocess` run: the corpus in parts of 250,000 pairs, with checksums of their files.

A run that is stopped leaves it beside the dataset, and the next makes the parts that are missing or damaged.
Several machines that see the same disk can make different parts.
"""

import errno
import json
import os
import shutil
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nmt_cli.data.preprocessing.job import differences
from nmt_cli.errors import UserError
from nmt_cli.runtime.atomic import file_written_whole, reach_disk, size_and_hash
from nmt_cli.runtime.foreign_text import parsed_json, read_ordinary

BLOCKS_A_PART = 25
"""Blocks of pairs in a part; what a stopped run has not finished of one is done again."""

WORTH_KEEPING = 2
"""Of fewer parts nothing is left behind by an error or an interrupt."""

JOB = "job.json"
SHARED = "shared"
"""A file that says that several machines work here: nothing is removed but on demand."""

CHECKSUMS = "checksums.json"
"""Size and SHA-256 of each file in a folder that `written_whole` made."""

CHECKED = ("clean-*", "encoded-*", "held-out", "tokenizer")

THERE_ALREADY = (errno.ENOTEMPTY, errno.EEXIST)


@dataclass(frozen=True, slots=True)
class Share:
    """The parts that one of several machines makes; `number` counts from 1."""

    number: int = 1
    machines: int = 1

    def has(self, part: int) -> bool:
        """Whether a part, counted from 0, is ours."""
        return part % self.machines == self.number - 1


def work_place(out: Path) -> Path:
    """Where a run keeps what it has done for the dataset `out`."""
    place = out.resolve()
    return place.with_name(f".{place.name}.work")


def open_work(out: Path, job: Mapping[str, Any], *, shared: bool, overwrite: bool) -> Path:
    """The folder for the parts of `job`, with those that are there already; `shared` with other machines."""
    place = work_place(out)
    described = json.dumps(job, sort_keys=True)
    _refuse_other(place, out, described, overwrite)
    if not (place / JOB).exists():
        place.mkdir(parents=True, exist_ok=True)  # by several machines at a time, it may be
        with file_written_whole(place / JOB) as file:
            file.write(described.encode())
    if shared:
        (place / SHARED).touch()
    return place


@contextmanager
def kept_if_worth_it(work: Path) -> Iterator[None]:
    """Remove the work folder where the block fails before much is done."""
    try:
        yield
    except BaseException:
        if len(list(work.glob("clean-*"))) < WORTH_KEEPING and not (work / SHARED).exists():
            drop_work(work)
        raise


def drop_work(work: Path) -> None:
    """Remove a work folder, if it is there."""
    shutil.rmtree(work, ignore_errors=True)


def _refuse_other(place: Path, out: Path, described: str, overwrite: bool) -> None:
    """Remove what was begun of another job; `UserError` where other machines may be at work on it."""
    if not (place / JOB).exists():
        return
    try:
        known = json.loads((place / JOB).read_text())
    except ValueError:
        known = None
    if known == json.loads(described):
        return
    if known and (place / SHARED).exists() and not overwrite:
        changed = "; ".join(differences(known, json.loads(described))) or "another version of nmt"
        raise UserError(
            f"{place} holds parts that were made otherwise with --shard ({changed}); "
            f"give the same options as there, or --overwrite to begin {out} anew."
        )
    drop_work(place)


@contextmanager
def written_whole(place: Path) -> Iterator[Path]:
    """Yield a folder to write in, which becomes `place` at the end, together with its checksums.

    If another process has made `place` by then, that one stays.
    """
    staging = place.with_name(f".{place.name}.{socket.gethostname()}.{os.getpid()}")
    shutil.rmtree(staging, ignore_errors=True)
    staging.mkdir(parents=True)
    try:
        yield staging
        (staging / CHECKSUMS).write_text(json.dumps(_checksums(staging)))
        for path in (*staging.rglob("*"), staging):
            reach_disk(path)
        try:
            staging.rename(place)
        except OSError as error:
            if error.errno not in THERE_ALREADY:
                raise
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def drop_damaged(work: Path, share: Share) -> tuple[str, ...]:
    """Remove the folders of a share with files that do not match their checksums, and return their names."""
    damaged = []
    for place in sorted(place for pattern in CHECKED for place in work.glob(pattern)):
        number = place.name.rpartition("-")[2]
        if (not number.isdecimal() or share.has(int(number))) and not _is_undamaged(place):
            shutil.rmtree(place)
            damaged.append(place.name)
    return tuple(damaged)


def _is_undamaged(place: Path) -> bool:
    try:
        return bool(parsed_json(read_ordinary(place / CHECKSUMS)) == _checksums(place))
    except (OSError, ValueError, UserError):
        return False


def _checksums(folder: Path) -> dict[str, Any]:
    """Return size and SHA-256 of each file in `folder`, by its path there."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path != folder / CHECKSUMS)
    return {str(path.relative_to(folder)): size_and_hash(path) for path in files}


def clean_part(work: Path, part: int) -> Path:
    """Where the prepared text of a part is."""
    return work / f"clean-{part:06}"


def encoded_part(work: Path, part: int) -> Path:
    """Where the ids of a part are."""
    return work / f"encoded-{part:06}"
