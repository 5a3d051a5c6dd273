"""The parts of the training set to one: without repetitions and overlong pairs, in the dataset folder."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nmt_cli.data.arrays import TextReader, TextWriter
from nmt_cli.data.cleaning.duplicates import HASHED, repeated, sought
from nmt_cli.data.cleaning.filters import DUPLICATE, SAME_SOURCE, SAME_TARGET, SUBWORDS
from nmt_cli.data.cleaning.report import CorpusReport, FilterReport
from nmt_cli.data.config import PreprocessConfig
from nmt_cli.data.dataset import TRAIN, side_path
from nmt_cli.data.encode import EncodedBlock, EncodedSide, TokensWriter, kept_of
from nmt_cli.data.preprocessing.cleaned import QUALITIES, counts_of, hashes_of, numbers_of, texts_of
from nmt_cli.data.preprocessing.job import Input
from nmt_cli.data.preprocessing.parts import clean_part, encoded_part
from nmt_cli.data.preprocessing.training_set import BLOCK_PAIRS, nothing_left, parts_of
from nmt_cli.runtime.processes import Progress
from nmt_cli.text.tokenizer import SIDES, Side, Tokenizer
from nmt_cli.text.tokenizers import Tokenizers

SKIPPED = (DUPLICATE, SAME_TARGET, SAME_SOURCE)
"""Why cleaned pairs are left out when all is merged, by number from 1: repetitions, in the order of
`HASHED`."""


def merge_parts(
    inputs: Sequence[Input],
    config: PreprocessConfig,
    tokenizers: Tokenizers,
    folder: Path,
    work: Path,
    report: FilterReport,
    progress: Progress,
) -> dict[str, Any]:
    """Write ids and text of all parts to `folder`, without repetitions and overlong pairs.

    Returns the description of the split for the manifest.
    """
    # Only now: a part's worker sees no other part, so repetitions can't be found while cleaning.
    skip = _repetitions(inputs, config, work, report)
    most = [item.filter(config).max_subwords for item in inputs]
    corpora, first = report.of_role(TRAIN), 0
    total = sum(corpus.kept for corpus in corpora)
    with ExitStack() as stack:
        writers = {
            side: stack.enter_context(_SideWriter(folder, side, tokenizers.side(side))) for side in SIDES
        }
        for part in range(parts_of(inputs)):
            with texts_of(work, part) as texts:
                numbers = numbers_of(work, part)
                ids = {side: _IdsReader(encoded_part(work, part), side) for side in SIDES}
                for owner, start, stop in _stretches(work, part):
                    source, target = (ids[side].read(start, stop) for side in SIDES)
                    repeats = None if skip is None else skip[first + start : first + stop]
                    block = kept_of(source, target, repeats, most[owner])
                    for side in SIDES:
                        writers[side].append_kept(block.side(side), texts[side], start, block.kept)
                    _count_drops(corpora[owner], block, repeats, numbers[start:stop], texts, start)
                    progress("merging", first + stop, total)
            first += len(numbers)
        split: dict[str, Any] = {"role": TRAIN, "pairs": writers["source"].pairs}
        split |= {f"{side}_{key}": value for side in SIDES for key, value in writers[side].counts().items()}
    if not split["pairs"]:
        raise nothing_left(report)
    if places := _places(inputs, report):
        split["corpora"] = places
    return split


def _stretches(work: Path, part: int) -> Iterator[tuple[int, int, int]]:
    """The cleaned text of a part in blocks that are each of one corpus: its number, first pair and end."""
    first = 0
    for owner, state in counts_of(work, part):
        end = first + state["kept"]
        for start in range(first, end, BLOCK_PAIRS):
            yield owner, start, min(start + BLOCK_PAIRS, end)
        first = end


def _repetitions(
    inputs: Sequence[Input], config: PreprocessConfig, work: Path, report: FilterReport
) -> NDArray[np.uint8] | None:
    """For each cleaned pair why it is left out, by `SKIPPED`, or 0; None where nobody asked. It is mapped
    from a file."""
    asked = [sought(item.filter(config)) for item in inputs]
    if not any(asked):
        return None
    ends = np.cumsum([corpus.kept for corpus in report.of_role(TRAIN)])
    parts = [clean_part(work, part) for part in range(parts_of(inputs))]
    found: NDArray[np.uint8] = np.lib.format.open_memmap(
        work / "left-out.npy", mode="w+", dtype=np.uint8, shape=(int(ends[-1]),)
    )
    for why, name in enumerate(HASHED, start=1):
        asks = np.array([name in some for some in asked])
        if not asks.any():
            continue
        qualities = [] if name == "pair" else [[part / value for part in parts] for value in QUALITIES]
        for numbers in repeated([hashes_of(part, name) for part in parts], work, qualities, found):
            # A corpus that does not ask keeps what others repeat, or have better.
            found[numbers[asks[ends.searchsorted(numbers, side="right")]]] = why
    return found


def _places(inputs: Sequence[Input], report: FilterReport) -> list[dict[str, Any]]:
    """Where each corpus lies in the split, for the manifest; empty where one could not tell them apart."""
    names = [item.corpus.name for item in inputs]
    if not inputs[0].named and (len(names) == 1 or len(set(names)) < len(names)):
        return []
    kept = [corpus.kept for corpus in report.of_role(TRAIN)]
    return [
        {
            "name": item.corpus.name,
            "first": sum(kept[:number]),
            "pairs": kept[number],
            "weight": item.named.weight if item.named else 0.0,
            "tag": item.named.tag if item.named else "",
        }
        for number, item in enumerate(inputs)
    ]


class _SideWriter(TokensWriter):
    """Writes ids and prepared text of one side of the training set."""

    def __init__(self, folder: Path, side: Side, tokenizer: Tokenizer) -> None:
        super().__init__(folder, TRAIN, side, tokenizer)
        self._text = TextWriter(
            side_path(folder, TRAIN, side, "txt"), side_path(folder, TRAIN, side, "lines.npy")
        )

    def append_kept(
        self, encoded: EncodedSide, text: TextReader, start: int, kept: NDArray[np.bool_]
    ) -> None:
        """Add the ids, and those lines of `text` from `start` on that are kept."""
        self.append(encoded)
        content, lengths = text.content(start, start + len(kept)), text.lengths(start, start + len(kept))
        # Most blocks lose nothing, and are copied without being split into lines.
        if not kept.all():
            lines = content.split(b"\n")[:-1]
            content = b"".join(line + b"\n" for line, keep in zip(lines, kept, strict=True) if keep)
            lengths = lengths[kept]
        self._text.append(content, lengths)

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        self._text.__exit__(*error)


def _count_drops(
    corpus: CorpusReport,
    block: EncodedBlock,
    repeats: NDArray[np.uint8] | None,
    numbers: NDArray[np.int64],
    texts: Mapping[Side, TextReader],
    start: int,
) -> None:
    """Count pairs of a block of `corpus` that are left out only when all is merged, overlong ones too.

    `numbers` are those of its pairs in their corpus; in `texts` it begins at `start`.
    """
    for i in np.flatnonzero(~block.kept):
        why = 0 if repeats is None else int(repeats[i])
        reason = SKIPPED[why - 1] if why else SUBWORDS
        corpus.kept -= 1
        if corpus.dropped.count(reason, int(numbers[i])):
            here = start + int(i)
            source, target = (texts[side].content(here, here + 1)[:-1].decode() for side in SIDES)
            corpus.dropped.keep(reason, int(numbers[i]), source, target)


class _IdsReader:
    """Reads, block after block, what `_IdsWriter` wrote."""

    def __init__(self, folder: Path, side: Side) -> None:
        self._tokens = np.load(folder / f"{side}.tokens.npy", mmap_mode="r")
        self._lengths = np.load(folder / f"{side}.lengths.npy", mmap_mode="r")
        self._first = 0

    def read(self, start: int, stop: int) -> EncodedSide:
        """Sentences `start` to `stop`; the next call must begin at `stop`."""
        lengths = np.array(self._lengths[start:stop])
        first, self._first = self._first, self._first + int(lengths.sum())
        return EncodedSide(np.array(self._tokens[first : self._first]), lengths)
