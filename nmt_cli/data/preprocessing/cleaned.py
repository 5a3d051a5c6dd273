"""The cleaned pairs of a part in the work folder: text, numbers, hashes and counts."""

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nmt_cli.data.arrays import ArrayWriter, TextReader, TextWriter
from nmt_cli.data.cleaning.clean import CleanBlock
from nmt_cli.data.cleaning.duplicates import HASHED, Hashed
from nmt_cli.data.cleaning.report import CorpusReport
from nmt_cli.data.dataset import TRAIN
from nmt_cli.data.preprocessing.parts import clean_part
from nmt_cli.text.tokenizer import SIDES, Side

NUMBERS = "numbers.npy"
QUALITIES = ("scores.npy", "closeness.npy")
REPORT = "report.json"


class CleanWriter(ExitStack):
    """Writes cleaned blocks of a part. The end of the `with` block writes their counts to report.json."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._texts = {side: self.enter_context(TextWriter(folder / side)) for side in SIDES}
        self._numbers = self.enter_context(ArrayWriter(folder / NUMBERS, np.int64))
        self._hashes = {name: self.enter_context(hashes_of(folder, name).open("wb")) for name in HASHED}
        self._qualities = [self.enter_context(ArrayWriter(folder / name, np.float32)) for name in QUALITIES]
        self.callback(self._write_counts, folder / REPORT)
        self._counts: dict[int, CorpusReport] = {}

    def append(self, owner: int, block: CleanBlock) -> None:
        """Write a block of corpus number `owner`, and count it. Blocks of one corpus must be consecutive."""
        self._texts["source"].append(block.source.content, block.source.lengths)
        self._texts["target"].append(block.target.content, block.target.lengths)
        self._numbers.append(block.numbers)
        for name, file in self._hashes.items():
            file.write(block.hashes[name])
        for writer, values in zip(self._qualities, block.qualities, strict=False):
            writer.append(values)
        self._counts.setdefault(owner, CorpusReport(TRAIN, "", 0)).add(block)

    def _write_counts(self, path: Path) -> None:
        """Write the counts of each corpus to the JSON file `path`. Its keys are corpus numbers."""
        counts = {owner: count.state() for owner, count in self._counts.items()}
        path.write_text(json.dumps(counts))


def numbers_of(work: Path, part: int) -> NDArray[np.int64]:
    """Return the line numbers, from 1, of a part's cleaned pairs in their corpora, mapped from disk."""
    numbers: NDArray[np.int64] = np.load(clean_part(work, part) / NUMBERS, mmap_mode="r")
    return numbers


def hashes_of(folder: Path, name: Hashed) -> Path:
    """Return the path of a hash file in `folder`, a cleaned part. `name` is the kind of text hashed."""
    return folder / f"{name}-hashes.bin"


def counts_of(work: Path, part: int) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield (corpus number, counts for `CorpusReport.merge`) for each corpus with blocks in a part."""
    for owner, state in json.loads((clean_part(work, part) / REPORT).read_text()).items():
        yield int(owner), state


@contextmanager
def texts_of(work: Path, part: int) -> Iterator[dict[Side, TextReader]]:
    """Yield the readers of a part's prepared text, by side. The end of the `with` block closes both."""
    folder = clean_part(work, part)
    with ExitStack() as stack:
        yield {side: stack.enter_context(TextReader(folder / side)) for side in SIDES}
