"""Merging of the parts of the training set in the dataset folder, without repeated and overlong pairs.

A cleaned pair is left out here if it repeats another one or has too many subwords. Cleaning cannot decide
that, because a worker sees one block, before subwords exist.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nmt_cli.data.array_files import ArrayWriter, TextReader, TextWriter
from nmt_cli.data.cleaning.duplicates import HASHED, find_repeated, hashes_needed
from nmt_cli.data.cleaning.filter_report import CorpusReport, FilterReport
from nmt_cli.data.cleaning.filters import DUPLICATE, SAME_TARGET, SUBWORDS
from nmt_cli.data.dataset import TRAIN, open_sentences
from nmt_cli.data.encode import EncodedSide, TokensWriter
from nmt_cli.data.preprocessing.job import Input
from nmt_cli.data.preprocessing.parts import (
    KEPT,
    QUALITIES,
    clean_part,
    counts_of,
    encoded_part,
    hashes_of,
    numbers_of,
    texts_of,
)
from nmt_cli.data.preprocessing.training_set import BLOCK_PAIRS, Run, nothing_left
from nmt_cli.text.tokenizer import SIDES, Side, Tokenizer
from nmt_cli.text.tokenizers import Tokenizers

REASONS = ("", DUPLICATE, SAME_TARGET, SUBWORDS)
"""The reasons to leave out a cleaned pair. Number 0 means that it is kept. Repetitions follow in the order of
`HASHED`."""

OVERLONG = REASONS.index(SUBWORDS)


class _Block(NamedTuple):
    """Cleaned and encoded pairs of one corpus."""

    owner: int
    """The number of the corpus."""

    first: int
    """The number of the first pair among the cleaned pairs of all parts, from 0."""

    start: int
    """The line of the first pair in `texts`."""

    numbers: NDArray[np.int64]
    """The number of each pair in its corpus, from 1."""

    texts: Mapping[Side, TextReader]
    source: EncodedSide
    target: EncodedSide


def merge_parts(run: Run, tokenizers: Tokenizers, folder: Path, report: FilterReport) -> dict[str, Any]:
    """Write the ids and the text of all parts to `folder`, and return the entry of the training set for the
    manifest.

    Pairs that are left out are counted in `report`. Raise `UserError` if no pair is left.
    """
    # A worker sees only its own part while it cleans, so repetitions are found here.
    left_out = _left_out(run, report)
    corpora = report.of_role(TRAIN)
    total = sum(corpus.kept for corpus in corpora)
    with ExitStack() as stack:
        writers = {
            side: stack.enter_context(_SideWriter(folder, side, tokenizers.side(side))) for side in SIDES
        }
        numbers = stack.enter_context(ArrayWriter(run.work / KEPT, np.int64))
        for block in _blocks(run.work, len(run.parts)):
            end = block.first + len(block.numbers)
            reasons = left_out[block.first : end]
            kept = reasons == 0
            writers["source"].append_kept(block.source, block.texts["source"], block.start, kept)
            writers["target"].append_kept(block.target, block.texts["target"], block.start, kept)
            numbers.append(block.numbers[kept])
            _count_drops(corpora[block.owner], block, kept, reasons)
            run.progress("merging", end, total)
        split: dict[str, Any] = {"role": TRAIN, "pairs": writers["source"].pairs}
        split |= {f"{side}_{key}": value for side in SIDES for key, value in writers[side].counts().items()}
    if not split["pairs"]:
        raise nothing_left(report)
    if corpus_ranges := _corpus_ranges(run.training, report):
        split["corpora"] = corpus_ranges
    return split


def _blocks(work: Path, parts: int) -> Iterator[_Block]:
    """Yield the pairs of all parts in order, in blocks of up to `BLOCK_PAIRS` pairs of one corpus."""
    first = 0
    for part in range(parts):
        numbers = numbers_of(work, part)
        source, target = (open_sentences(encoded_part(work, part), TRAIN, side) for side in SIDES)
        with texts_of(work, part) as texts:
            for owner, start, stop in _stretches(work, part):
                ids = EncodedSide.read(source, start, stop), EncodedSide.read(target, start, stop)
                yield _Block(owner, first + start, start, numbers[start:stop], texts, *ids)
        first += len(numbers)


def _stretches(work: Path, part: int) -> Iterator[tuple[int, int, int]]:
    """Yield (corpus number, first line, end) for each block of a part. Lines are counted from 0 in the
    part."""
    first = 0
    for owner, state in counts_of(work, part):
        end = first + state["kept"]
        for start in range(first, end, BLOCK_PAIRS):
            yield owner, start, min(start + BLOCK_PAIRS, end)
        first = end


def _left_out(run: Run, report: FilterReport) -> NDArray[np.uint8]:
    """Return the number in `REASONS` of each cleaned pair. The array is in a new file of the work folder."""
    needs = [hashes_needed(item.filter(run.config)) for item in run.training]
    ends = np.cumsum([corpus.kept for corpus in report.of_role(TRAIN)])
    parts = [clean_part(run.work, part) for part in range(len(run.parts))]
    # On disk, because memory must not grow with the corpus.
    reasons: NDArray[np.uint8] = np.lib.format.open_memmap(
        run.work / "left-out.npy", mode="w+", dtype=np.uint8, shape=(int(ends[-1]),)
    )
    # Before repetitions, because a shorter pair may repeat an overlong one. Otherwise the overlong pair might
    # be the one that is kept, and then dropped, so that none of the group was left.
    _mark_overlong(run, reasons)
    for reason, name in enumerate(HASHED, start=1):
        is_filtered = np.array([name in corpus_needs for corpus_needs in needs])
        if not is_filtered.any():
            continue
        qualities = [] if name == "pair" else [[part / value for part in parts] for value in QUALITIES]
        for numbers in find_repeated([hashes_of(part, name) for part in parts], run.work, qualities, reasons):
            # A corpus without this filter keeps pairs that repeat those of other corpora.
            reasons[numbers[is_filtered[ends.searchsorted(numbers, side="right")]]] = reason
    return reasons


def _mark_overlong(run: Run, reasons: NDArray[np.uint8]) -> None:
    """Mark each pair of which a side has more subwords than `max_subwords` of its corpus."""
    limits = [item.filter(run.config).max_subwords for item in run.training]
    first = 0
    for part in range(len(run.parts)):
        sides = [open_sentences(encoded_part(run.work, part), TRAIN, side) for side in SIDES]
        longest = np.maximum(*(np.diff(side.offsets) for side in sides))
        for owner, start, stop in _stretches(run.work, part):
            if limits[owner]:
                is_overlong = longest[start:stop] > limits[owner]
                reasons[first + start : first + stop][is_overlong] = OVERLONG
        first += len(longest)


def _corpus_ranges(inputs: Sequence[Input], report: FilterReport) -> list[dict[str, Any]]:
    """Return an entry for the manifest for each corpus: name, first pair, number of pairs and tag.

    Without `[[corpus]]` sections, return [] for a single corpus, or if two corpora have equal names.
    """
    names = [item.corpus.name for item in inputs]
    if not inputs[0].named and (len(names) == 1 or len(set(names)) < len(names)):
        return []
    kept = [corpus.kept for corpus in report.of_role(TRAIN)]
    return [
        {
            "name": item.corpus.name,
            "first": sum(kept[:number]),
            "pairs": kept[number],
            "tag": item.named.tag if item.named else "",
        }
        for number, item in enumerate(inputs)
    ]


class _SideWriter(TokensWriter):
    """Writes the ids and the prepared text of one side of the training set."""

    def __init__(self, folder: Path, side: Side, tokenizer: Tokenizer) -> None:
        super().__init__(folder, TRAIN, side, tokenizer)
        self._text = self.enter_context(TextWriter(folder / f"{TRAIN}.{side}"))

    def append_kept(
        self, encoded: EncodedSide, text: TextReader, start: int, kept: NDArray[np.bool_]
    ) -> None:
        """Write those sentences whose value in `kept` is true. `start` is the line of the first sentence in
        `text`."""
        self.append(encoded.only(kept))
        content, lengths = text.content(start, start + len(kept)), text.lengths(start, start + len(kept))
        # Most blocks are kept whole, and need not be split into lines.
        if not kept.all():
            lines = content.split(b"\n")[:-1]
            content = b"".join(line + b"\n" for line, keep in zip(lines, kept, strict=True) if keep)
            lengths = lengths[kept]
        self._text.append(content, lengths)


def _count_drops(
    corpus: CorpusReport, block: _Block, kept: NDArray[np.bool_], reasons: NDArray[np.uint8]
) -> None:
    """Count the pairs of a block that are left out, and keep samples of them. `reasons` has the number of
    each pair's reason in `REASONS`."""
    for i in np.flatnonzero(~kept).tolist():
        reason, number, line = REASONS[reasons[i]], int(block.numbers[i]), block.start + i
        corpus.kept -= 1
        if corpus.dropped.count(reason, number):
            source, target = (block.texts[side].content(line, line + 1)[:-1].decode() for side in SIDES)
            corpus.dropped.keep(reason, number, source, target)
