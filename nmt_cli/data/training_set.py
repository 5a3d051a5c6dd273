"""The training set: cleaned into a work folder, sampled for the learner, encoded into the dataset folder."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nmt_cli.data.arrays import ArrayWriter, TextReader, TextWriter
from nmt_cli.data.clean import CleanTask, clean
from nmt_cli.data.config import FilterConfig, PreprocessConfig
from nmt_cli.data.dataset import TOKENIZERS, TRAIN, side_path
from nmt_cli.data.duplicates import HASHED, Hashed, repeated, sought
from nmt_cli.data.encode import EncodedBlock, EncodedSide, EncodeTask, TokensWriter, encode_block
from nmt_cli.data.filters import DUPLICATE, HELD_OUT, SAME_SOURCE, SAME_TARGET, SUBWORDS
from nmt_cli.data.held_out import HeldOut
from nmt_cli.data.held_out import write as held_out_keys
from nmt_cli.data.job import Input
from nmt_cli.data.report import CorpusReport, FilterReport
from nmt_cli.errors import UserError
from nmt_cli.machine.processes import Progress, in_order
from nmt_cli.text.config import TokenizerConfig
from nmt_cli.text.tokenizer import SIDES, Side, Tokenizer
from nmt_cli.text.tokenizers import Recipe, Tokenizers

BLOCK_PAIRS = 10_000
"""Pairs that a worker takes at a time."""

WORK = "work"
"""The work folder inside the dataset folder; the caller removes it when the dataset is complete."""

NUMBERS = "numbers.npy"
HELD_OUT_KEYS = "held-out.txt"
QUALITIES = ("scores.npy", "closeness.npy")
SKIPPED = (DUPLICATE, SAME_TARGET, SAME_SOURCE)
"""Why cleaned pairs are left out when they are encoded, by number from 1."""


def clean_training_set(
    inputs: Sequence[Input],
    held_out: Sequence[Input],
    config: PreprocessConfig,
    recipe: Recipe,
    folder: Path,
    report: FilterReport,
    workers: int,
    progress: Progress,
) -> None:
    """Write the prepared text of all pairs that pass the filters to a work folder in `folder`.

    The others are counted in `report`, those that are in `held_out` too. The number in its corpus of each
    pair that passed is kept beside the text, and its hashes where repetitions are to be found.
    """
    work = folder / WORK
    work.mkdir()
    known = held_out_keys([item.corpus for item in held_out], work / HELD_OUT_KEYS) if held_out else None
    corpora = [CorpusReport(item.role, item.corpus.name, item.pairs) for item in inputs]
    report.corpora += corpora
    owners = [corpus for corpus in corpora for _ in range(_blocks(corpus.read))]
    total = sum(corpus.read for corpus in corpora)
    with ExitStack() as stack:
        texts = {side: stack.enter_context(_text_writer(work, side)) for side in SIDES}
        numbers = stack.enter_context(ArrayWriter(work / NUMBERS, np.int64))
        hashes = {name: stack.enter_context(_hashes(work, name).open("wb")) for name in HASHED}
        qualities = [stack.enter_context(ArrayWriter(work / name, np.float32)) for name in QUALITIES]
        tasks = _clean_tasks(inputs, config, recipe, known)
        cleaned = in_order(clean, tasks, min(workers, len(owners)))
        for number, (corpus, block) in enumerate(zip(owners, cleaned, strict=True), start=1):
            texts["source"].append(block.source.content, block.source.lengths)
            texts["target"].append(block.target.content, block.target.lengths)
            numbers.append(block.numbers)
            for name, file in hashes.items():
                file.write(block.hashes[name])
            for writer, values in zip(qualities, block.qualities, strict=False):
                writer.append(values)
            corpus.add(block)
            progress("cleaning", min(number * BLOCK_PAIRS, total), total)
    if not numbers.length:
        raise _nothing_left(report)


def draw_sample(folder: Path, config: TokenizerConfig) -> dict[Side, list[str]]:
    """The `config.sample_lines` lines that subwords are learnt from, both sides together.

    One pair is drawn from each of as many equal stretches of the corpus.
    """
    sample = {}
    for side in SIDES:
        with _text_reader(folder / WORK, side) as text:
            pairs = min(len(text), max(1, config.sample_lines // 2))
            # The same seed for either side, so that the lines of both are those of the same pairs.
            places = np.arange(pairs) + np.random.default_rng(config.seed).random(pairs)
            numbers = (places * (len(text) / pairs)).astype(np.int64)
            sample[side] = text.lines(np.minimum(numbers, len(text) - 1))
    return sample


def encode_training_set(
    inputs: Sequence[Input],
    config: PreprocessConfig,
    tokenizers: Tokenizers,
    folder: Path,
    report: FilterReport,
    workers: int,
    progress: Progress,
) -> dict[str, Any]:
    """Write ids and text of the cleaned pairs to `folder`, without duplicates and overlong pairs.

    `tokenizers` are those in `folder`, where the workers find them. Returns the description of the split for
    the manifest.
    """
    work = folder / WORK
    # Only now: a block's worker sees no other block, so duplicates can't be found while cleaning.
    skip = _repetitions(work, inputs, config, report)
    with ExitStack() as stack:
        texts = {side: stack.enter_context(_text_reader(work, side)) for side in SIDES}
        writers = {
            side: stack.enter_context(_SideWriter(folder, side, tokenizers.side(side))) for side in SIDES
        }
        drops = _Drops(np.load(work / NUMBERS, mmap_mode="r"), texts, report, skip)
        pairs = len(texts["source"])
        parts = [*_parts(inputs, config, report)]
        tasks = (_encode_task(part, folder, tokenizers.fingerprint, texts, skip) for part in parts)
        for part, block in zip(parts, in_order(encode_block, tasks, min(workers, len(parts))), strict=True):
            for side in SIDES:
                writers[side].append_kept(block.side(side), texts[side], part.start, block.kept)
            drops.record(part.start, block)
            progress("encoding", part.stop, pairs)
        split: dict[str, Any] = {"role": TRAIN, "pairs": writers["source"].pairs}
        split |= {f"{side}_{key}": value for side in SIDES for key, value in writers[side].counts().items()}
    if not split["pairs"]:
        raise _nothing_left(report)
    if corpora := _places(inputs, report):
        split["corpora"] = corpora
    return split


def _places(inputs: Sequence[Input], report: FilterReport) -> list[dict[str, Any]]:
    """Where each corpus lies in the split, for the manifest; empty where one could not tell them apart."""
    names = [item.corpus.name for item in inputs]
    if not inputs[0].named and (len(names) == 1 or len(set(names)) < len(names)):
        return []
    kept = [corpus.kept for corpus in report.of_role("train")]
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


class _Drops:
    """Counts in the report pairs that are dropped only when they are encoded: repetitions and overlong
    ones."""

    def __init__(
        self,
        numbers: NDArray[np.int64],
        texts: dict[Side, TextReader],
        report: FilterReport,
        skip: NDArray[np.uint8] | None,
    ) -> None:
        self._skip = skip
        self._numbers = numbers
        self._texts = texts
        self._corpora = report.of_role("train")
        self._ends = np.cumsum([corpus.kept for corpus in self._corpora])

    def record(self, start: int, block: EncodedBlock) -> None:
        """Count the dropped pairs of a block that begins with pair `start` of the cleaned text."""
        for i in np.flatnonzero(~block.kept):
            pair = start + int(i)
            # The cleaned text is all corpora one after another; `_ends` are their ends before any was dropped
            # here.
            corpus = self._corpora[int(np.searchsorted(self._ends, pair, side="right"))]
            repeats = 0 if self._skip is None else int(self._skip[pair])
            reason = SKIPPED[repeats - 1] if repeats else SUBWORDS
            number = int(self._numbers[pair])
            corpus.kept -= 1
            if corpus.dropped.count(reason, number):
                corpus.dropped.keep(
                    reason,
                    number,
                    *(self._texts[side].content(pair, pair + 1)[:-1].decode() for side in SIDES),
                )


def _clean_tasks(
    inputs: Sequence[Input], config: PreprocessConfig, recipe: Recipe, held_out: HeldOut | None
) -> Iterator[CleanTask]:
    hashed = frozenset[Hashed]().union(*(sought(item.filter(config)) for item in inputs))
    for item in inputs:
        tag, own = item.named.tag if item.named else "", item.filter(config)
        for block in item.corpus.blocks(BLOCK_PAIRS):
            known = held_out if own.decontaminate else None
            yield CleanTask(block, item.corpus, recipe, own, config.corpus.invalid_utf8, known, tag, hashed)


def _repetitions(
    work: Path, inputs: Sequence[Input], config: PreprocessConfig, report: FilterReport
) -> NDArray[np.uint8] | None:
    """For each cleaned pair why it is left out, by `SKIPPED`, or 0; None where nobody asked."""
    asked = [sought(item.filter(config)) for item in inputs]
    if not any(asked):
        return None
    kept = [corpus.kept for corpus in report.of_role("train")]
    qualities = [np.load(work / name, mmap_mode="r") for name in QUALITIES]
    found = np.zeros(sum(kept), np.uint8)
    for why, name in enumerate(HASHED, start=1):
        if any(name in some for some in asked):
            again = repeated(_hashes(work, name), [] if name == "pair" else qualities, found > 0)
            # A corpus that does not ask keeps what others repeat, or have better.
            again &= np.repeat([name in some for some in asked], kept)
            found[again] = why
    return found


def _hashes(work: Path, name: str) -> Path:
    return work / f"{name}-hashes.bin"


@dataclass(frozen=True, slots=True)
class _Part:
    """Pairs of the cleaned text that are of one corpus, from `start` up to before `stop`."""

    start: int
    stop: int
    filter: FilterConfig


def _parts(inputs: Sequence[Input], config: PreprocessConfig, report: FilterReport) -> Iterator[_Part]:
    """The cleaned text in blocks; none has pairs of two corpora, which may have filters of their own."""
    first = 0
    for item, corpus in zip(inputs, report.of_role("train"), strict=True):
        end = first + corpus.kept
        for start in range(first, end, BLOCK_PAIRS):
            yield _Part(start, min(start + BLOCK_PAIRS, end), item.filter(config))
        first = end


def _encode_task(
    part: _Part,
    folder: Path,
    fingerprint: str,
    texts: dict[Side, TextReader],
    skip: NDArray[np.uint8] | None,
) -> EncodeTask:
    start, stop = part.start, part.stop
    return EncodeTask(
        folder / TOKENIZERS,
        fingerprint,
        texts["source"].extent(start, stop),
        texts["target"].extent(start, stop),
        None if skip is None else skip[start:stop] > 0,
        part.filter.max_subwords,
    )


def _nothing_left(report: FilterReport) -> UserError:
    known = any(corpus.dropped.counts[HELD_OUT] for corpus in report.of_role("train"))
    cure = "; filter.decontaminate=false trains on pairs of valid and test sets too" if known else ""
    return UserError(
        f"no training pair is left ({report.reasons()}); look at the corpus, or relax [filter]{cure}."
    )


def _blocks(pairs: int) -> int:
    return -(-pairs // BLOCK_PAIRS)


def _text_writer(work: Path, side: Side) -> TextWriter:
    return TextWriter(work / f"{side}.txt", work / f"{side}.lines.npy")


def _text_reader(work: Path, side: Side) -> TextReader:
    return TextReader(work / f"{side}.txt", work / f"{side}.lines.npy")
