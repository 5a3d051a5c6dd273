"""The work folder of a `preprocess` run: the corpus in parts of 250,000 pairs, with checksums of their files.

An interrupted run leaves it beside the dataset. The next run makes the missing and damaged parts. Machines
that share a disk can make different parts.
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
"""Blocks of pairs in a part. An interrupted run starts an unfinished part again."""

WORTH_KEEPING = 2
"""With fewer parts, an error or an interrupt removes the work folder."""

JOB = "job.json"
SHARED = "shared"
"""A file that marks the folder as shared by several machines. Only --overwrite removes their parts."""

CHECKSUMS = "checksums.json"
"""The file with the size and SHA-256 of each file in a folder that `written_whole` made."""

CHECKED = ("clean-*", "ids-*", "held-out", "tokenizer")

THERE_ALREADY = (errno.ENOTEMPTY, errno.EEXIST)


@dataclass(frozen=True, slots=True)
class Share:
    """The parts that one of several machines makes. `number` is the number of this machine, from 1."""

    number: int = 1
    machines: int = 1

    def has(self, part: int) -> bool:
        """Return whether this machine makes part number `part`, which counts from 0."""
        return part % self.machines == self.number - 1


def work_folder(out: Path) -> Path:
    """Return the path of the work folder: `.NAME.work` beside the dataset `out`. The folder may not exist."""
    resolved = out.resolve()
    return resolved.with_name(f".{resolved.name}.work")


def open_work(out: Path, job: Mapping[str, Any], *, shared: bool, overwrite: bool) -> Path:
    """Return the work folder of `out`. Keep its finished parts if its job equals `job`, else remove it first.
    Unless `overwrite`, raise `UserError` if another job's is shared. If `shared`, mark it as shared."""
    folder = work_folder(out)
    described = json.dumps(job, sort_keys=True)
    _refuse_other(folder, out, described, overwrite)
    if not (folder / JOB).exists():
        folder.mkdir(parents=True, exist_ok=True)  # other machines may do the same now
        with file_written_whole(folder / JOB) as file:
            file.write(described.encode())
    if shared:
        (folder / SHARED).touch()
    return folder


@contextmanager
def kept_if_worth_it(work: Path) -> Iterator[None]:
    """If the block fails, remove a work folder with under `WORTH_KEEPING` parts that is not shared."""
    try:
        yield
    except BaseException:
        if len(list(work.glob("clean-*"))) < WORTH_KEEPING and not (work / SHARED).exists():
            drop_work(work)
        raise


def drop_work(work: Path) -> None:
    """Remove a work folder with all its content. Ignore errors, such as a missing folder."""
    shutil.rmtree(work, ignore_errors=True)


def _refuse_other(folder: Path, out: Path, described: str, overwrite: bool) -> None:
    """Remove the work folder `folder` if its job is not `described`, a JSON text. If the folder is marked as
    shared by several machines and `overwrite` is false, raise `UserError` instead."""
    if not (folder / JOB).exists() or (earlier := (folder / JOB).read_bytes()) == described.encode():
        return
    if (folder / SHARED).exists() and not overwrite:
        changes = differences(parsed_json(earlier), json.loads(described))
        changed = "; ".join(changes) or "another version of nmt"
        raise UserError(
            f"{folder} holds parts of --shard that were made with other options ({changed}). "
            f"Give the same options, or --overwrite to start {out} again."
        )
    drop_work(folder)


@contextmanager
def written_whole(folder: Path) -> Iterator[Path]:
    """Yield a new, empty folder. After the block, add checksums, flush to disk, and rename the folder to
    `folder`. If `folder` exists by then, keep it, and remove the new one. After an error, nothing is left."""
    staging = folder.with_name(f".{folder.name}.{socket.gethostname()}.{os.getpid()}")
    shutil.rmtree(staging, ignore_errors=True)
    staging.mkdir(parents=True)
    try:
        yield staging
        (staging / CHECKSUMS).write_text(json.dumps(_checksums(staging)))
        for path in (*staging.rglob("*"), staging):
            reach_disk(path)
        try:
            staging.rename(folder)
        except OSError as error:
            if error.errno not in THERE_ALREADY:
                raise
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def drop_damaged(work: Path, share: Share) -> tuple[str, ...]:
    """Remove the folders of a share whose checksums do not match or are missing. Return the removed names.
    Folders without a part number, such as the tokenizers, belong to every share."""
    damaged = []
    for folder in sorted(folder for pattern in CHECKED for folder in work.glob(pattern)):
        number = folder.name.rpartition("-")[2]
        if (not number.isdecimal() or share.has(int(number))) and not _is_undamaged(folder):
            shutil.rmtree(folder)
            damaged.append(folder.name)
    return tuple(damaged)


def _is_undamaged(folder: Path) -> bool:
    """Return whether the files in `folder` match its checksums. Return False without readable checksums."""
    try:
        return bool(parsed_json(read_ordinary(folder / CHECKSUMS)) == _checksums(folder))
    except (OSError, ValueError, UserError):
        return False


def _checksums(folder: Path) -> dict[str, Any]:
    """Return the size and SHA-256 of each file by relative path. Leave out the checksums file."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path != folder / CHECKSUMS)
    return {str(path.relative_to(folder)): size_and_hash(path) for path in files}


def clean_part(work: Path, part: int) -> Path:
    """Return the path of the folder with the prepared text of a part."""
    return work / f"clean-{part:06}"


def encoded_part(work: Path, part: int) -> Path:
    """Return the path of the folder with the ids of a part."""
    return work / f"ids-{part:06}"
