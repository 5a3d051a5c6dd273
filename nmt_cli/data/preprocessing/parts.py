"""The work folder of a `preprocess` run: the corpus in parts of 250,000 pairs, with checksums of their files.

It is beside the dataset, and an interrupted run leaves it there. The next run makes only missing and damaged
parts. A part has a folder of cleaned text and, later, a folder of ids.
"""

import json
import shutil
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nmt_cli import __version__
from nmt_cli.data.array_files import ArrayWriter, TextReader, TextWriter, mapped_array
from nmt_cli.data.cleaning.clean import CleanBlock
from nmt_cli.data.cleaning.duplicates import HASHED, Hashed
from nmt_cli.data.cleaning.filter_report import CorpusReport
from nmt_cli.data.dataset import TRAIN
from nmt_cli.errors import UserError
from nmt_cli.runtime.atomic import file_written_whole, renamed_when_whole, size_and_hash
from nmt_cli.runtime.foreign_text import parsed_json, read_ordinary
from nmt_cli.text.tokenizer import SIDES, Side

BLOCKS_A_PART = 25
"""The number of blocks of pairs in a part. An interrupted run starts an unfinished part again."""

WORTH_KEEPING = 2
"""If fewer parts are finished, an error or an interrupt removes the work folder."""

JOB = "job.json"
CHECKSUMS = "checksums.json"
"""The file with the size and SHA-256 of each file in a folder that `written_whole` made."""

CHECKED = ("scores-*", "clean-*", "ids-*", "held-out", "tokenizer")

NUMBERS = "numbers.npy"
KEPT = "kept.npy"
"""The numbers, from 1, of all pairs of the dataset in their corpora."""

QUALITIES = ("scores.npy", "closeness.npy")
REPORT = "report.json"
SCORES = "scores.npy"
"""The scores of a corpus by the command in `filter.scorer`."""


def work_folder(out: Path) -> Path:
    """Return the path of the work folder of a dataset: `.NAME.work` beside it. The folder may not exist."""
    resolved = out.resolve()
    return resolved.with_name(f".{resolved.name}.work")


def open_work(folder: Path, job: Iterable[tuple[str, str]]) -> None:
    """Create the work folder, or continue with its finished parts.

    `job` has the facts that decide the dataset. If the parts are of another job or another version of nmt,
    they are removed.
    """
    # The version is included, because parts of two versions were once mixed.
    described = json.dumps({"nmt": __version__, **dict(job)}, sort_keys=True).encode()
    if not (folder / JOB).exists() or (folder / JOB).read_bytes() != described:
        drop_work(folder)
        folder.mkdir(parents=True, exist_ok=True)
        with file_written_whole(folder / JOB) as file:
            file.write(described)


def drop_work(work: Path) -> None:
    """Remove a work folder with its content. Errors are ignored, such as a missing folder."""
    shutil.rmtree(work, ignore_errors=True)


@contextmanager
def written_whole(folder: Path) -> Iterator[Path]:
    """Yield an empty folder, which the block fills. It becomes `folder` at the end of the block, with
    checksums of its files.

    After an error, nothing is left.
    """
    staging = folder.with_name(f".{folder.name}.unfinished")
    shutil.rmtree(staging, ignore_errors=True)
    staging.mkdir(parents=True)
    # No lock and no message here: the run has the lock of its dataset, and names that if the disk is full.
    with renamed_when_whole(staging, folder):
        yield staging
        (staging / CHECKSUMS).write_text(json.dumps(_checksums(staging)))


def drop_damaged(work: Path) -> tuple[str, ...]:
    """Remove the folders of the work folder whose files do not match their checksums. Return the names of
    these folders."""
    folders = sorted(folder for pattern in CHECKED for folder in work.glob(pattern))
    damaged = [folder for folder in folders if not _is_undamaged(folder)]
    for folder in damaged:
        shutil.rmtree(folder)
    return tuple(folder.name for folder in damaged)


def _is_undamaged(folder: Path) -> bool:
    """Return whether the files in `folder` match its checksums. Without readable checksums, they do not."""
    try:
        return bool(parsed_json(read_ordinary(folder / CHECKSUMS)) == _checksums(folder))
    except (OSError, ValueError, UserError):
        return False


def _checksums(folder: Path) -> dict[str, Any]:
    """Return the size and SHA-256 of each file by its relative path. The file of the checksums is left
    out."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path != folder / CHECKSUMS)
    return {str(path.relative_to(folder)): size_and_hash(path) for path in files}


def clean_part(work: Path, part: int) -> Path:
    """Return the path of the folder with the prepared text of a part."""
    return work / f"clean-{part:06}"


def encoded_part(work: Path, part: int) -> Path:
    """Return the path of the folder with the ids of a part."""
    return work / f"ids-{part:06}"


def scored_corpus(work: Path, owner: int) -> Path:
    """Return the path of the folder with the scores of a training corpus. `owner` is its number."""
    return work / f"scores-{owner:06}"


class CleanWriter(ExitStack):
    """Writes the cleaned blocks of a part. When the `with` block ends, their counts are written to
    report.json."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._texts = {side: self.enter_context(TextWriter(folder / side)) for side in SIDES}
        self._numbers = self.enter_context(ArrayWriter(folder / NUMBERS, np.int64))
        self._hashes = {name: self.enter_context(hashes_of(folder, name).open("wb")) for name in HASHED}
        self._qualities = [self.enter_context(ArrayWriter(folder / name, np.float32)) for name in QUALITIES]
        self.callback(self._write_counts, folder / REPORT)
        self._counts: dict[int, CorpusReport] = {}

    def append(self, owner: int, block: CleanBlock) -> None:
        """Write a block of corpus number `owner`, and count its pairs. The blocks of a corpus must be
        consecutive."""
        self._texts["source"].append(block.source.content, block.source.lengths)
        self._texts["target"].append(block.target.content, block.target.lengths)
        self._numbers.append(block.numbers)
        for name, file in self._hashes.items():
            file.write(block.hashes[name])
        for writer, values in zip(self._qualities, block.qualities, strict=False):
            writer.append(values)
        self._counts.setdefault(owner, CorpusReport(TRAIN, "", 0)).add(block)

    def _write_counts(self, path: Path) -> None:
        path.write_text(json.dumps({owner: count.state() for owner, count in self._counts.items()}))


def numbers_of(work: Path, part: int) -> NDArray[np.int64]:
    """Return the numbers, from 1, of the cleaned pairs of a part in their corpora, mapped from disk."""
    numbers: NDArray[np.int64] = mapped_array(clean_part(work, part) / NUMBERS)
    return numbers


def scores_of(work: Path, owner: int) -> NDArray[np.float64]:
    """Return the scores of training corpus number `owner`, mapped from disk. Without a scorer, the array is
    empty."""
    path = scored_corpus(work, owner) / SCORES
    return mapped_array(path) if path.exists() else np.empty(0)


def hashes_of(folder: Path, name: Hashed) -> Path:
    """Return the path of a file of hashes. `folder` is that of a cleaned part, and `name` the kind of
    text."""
    return folder / f"{name}-hashes.bin"


def counts_of(work: Path, part: int) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the number of each corpus in a part, and its counts for `CorpusReport.merge`."""
    for owner, state in json.loads((clean_part(work, part) / REPORT).read_text()).items():
        yield int(owner), state


@contextmanager
def texts_of(work: Path, part: int) -> Iterator[dict[Side, TextReader]]:
    """Yield the readers of a part's prepared text by side. They are closed when the block ends."""
    folder = clean_part(work, part)
    with ExitStack() as stack:
        yield {side: stack.enter_context(TextReader(folder / side)) for side in SIDES}
