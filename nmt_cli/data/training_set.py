"""The training set: cleaned and encoded part by part in a work folder, merged into the dataset folder."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nmt_cli.data.arrays import ArrayWriter, TextReader, TextWriter
from nmt_cli.data.clean import CleanBlock, CleanTask, clean
from nmt_cli.data.config import PreprocessConfig
from nmt_cli.data.dataset import TRAIN, side_path
from nmt_cli.data.duplicates import repeated
from nmt_cli.data.encode import (
    EncodedBlock,
    EncodedSide,
    EncodeTask,
    TokensWriter,
    encode_block,
    kept_of,
    token_type,
)
from nmt_cli.data.filters import DUPLICATE, SUBWORDS
from nmt_cli.data.job import Input
from nmt_cli.data.parts import BLOCKS_A_PART, Share, clean_part, encoded_part, written_whole
from nmt_cli.data.report import CorpusReport, FilterReport
from nmt_cli.data.tally import Tally
from nmt_cli.errors import UserError
from nmt_cli.machine.processes import Progress, in_order
from nmt_cli.text.config import TokenizerConfig
from nmt_cli.text.tokenizer import SIDES, Side, Tokenizer
from nmt_cli.text.tokenizers import Recipe, Tokenizers

BLOCK_PAIRS = 10_000
"""Pairs that a worker takes at a time."""

HASHES = "hashes.bin"
NUMBERS = "numbers.npy"
REPORT = "report.json"


def parts_of(inputs: Sequence[Input]) -> int:
    """How many parts the corpora have."""
    return -(-len(_owners(inputs)) // BLOCKS_A_PART)


def clean_parts(
    inputs: Sequence[Input],
    config: PreprocessConfig,
    recipe: Recipe,
    work: Path,
    share: Share,
    workers: int,
    progress: Progress,
) -> None:
    """Write the prepared text of all pairs that pass the filters, of each part in `share` that is missing.

    Beside the text are the number in its corpus of each pair that passed, its hash where duplicates are to be
    found, and how many pairs did not pass, by reason.
    """
    owners = _owners(inputs)
    ours = [part for part in range(parts_of(inputs)) if share.has(part)]
    missing = [part for part in ours if not clean_part(work, part).exists()]
    blocks = [number for part in missing for number in _blocks_of(part, len(owners))]
    whole = sum(len(_blocks_of(part, len(owners))) for part in ours)
    total = min(whole * BLOCK_PAIRS, sum(item.pairs for item in inputs))
    tasks = _clean_tasks(inputs, config, recipe, frozenset(blocks))
    cleaned = zip(blocks, in_order(clean, tasks, max(1, min(workers, len(blocks)))), strict=True)
    done = whole - len(blocks)
    for part in missing:
        with written_whole(clean_part(work, part)) as folder, _CleanWriter(folder) as writer:
            for number, block in islice(cleaned, len(_blocks_of(part, len(owners)))):
                writer.append(owners[number], block)
                done += 1
                progress("cleaning", min(done * BLOCK_PAIRS, total), total)


class _CleanWriter:
    """Writes a part's cleaned blocks, and at the end what became of the other pairs."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._stack = folder, ExitStack()
        self._texts = {side: self._stack.enter_context(_text_writer(folder, side)) for side in SIDES}
        self._numbers = self._stack.enter_context(ArrayWriter(folder / NUMBERS, np.int64))
        self._hashes = self._stack.enter_context((folder / HASHES).open("wb"))
        self._counts: dict[int, CorpusReport] = {}

    def append(self, owner: int, block: CleanBlock) -> None:
        """Add a block of corpus number `owner`."""
        self._texts["source"].append(block.source.content, block.source.lengths)
        self._texts["target"].append(block.target.content, block.target.lengths)
        self._numbers.append(block.numbers)
        self._hashes.write(block.hashes)
        count = self._counts.setdefault(owner, CorpusReport(TRAIN, "", 0))
        count.kept += len(block.numbers)
        count.dropped.merge(block.dropped)
        count.noted.merge(block.noted)

    def __enter__(self) -> "_CleanWriter":
        return self

    def __exit__(self, *error: Any) -> None:
        self._stack.__exit__(*error)
        told = {
            owner: {
                "kept": count.kept,
                "dropped": count.dropped.described(),
                "noted": count.noted.described(),
            }
            for owner, count in self._counts.items()
        }
        (self._folder / REPORT).write_text(json.dumps(told))


def gather_report(inputs: Sequence[Input], work: Path, report: FilterReport) -> None:
    """Add to `report` what became of the pairs of all parts when they were cleaned."""
    corpora = [CorpusReport(item.role, item.corpus.name, item.pairs) for item in inputs]
    for part in range(parts_of(inputs)):
        told = json.loads((clean_part(work, part) / REPORT).read_text())
        for owner, count in told.items():
            corpus = corpora[int(owner)]
            corpus.kept += count["kept"]
            corpus.dropped.merge(Tally.of(count["dropped"]))
            corpus.noted.merge(Tally.of(count["noted"]))
    report.corpora += corpora
    if not any(corpus.kept for corpus in corpora):
        raise _nothing_left(report)


def draw_sample(work: Path, parts: int, config: TokenizerConfig) -> dict[Side, list[str]]:
    """The `config.sample_lines` lines that subwords are learnt from, both sides together.

    One pair is drawn from each of as many equal stretches of the corpus.
    """
    sizes = [len(_numbers(work, part)) for part in range(parts)]
    pairs = min(sum(sizes), max(1, config.sample_lines // 2))
    places = np.arange(pairs) + np.random.default_rng(config.seed).random(pairs)
    chosen = np.minimum((places * (sum(sizes) / pairs)).astype(np.int64), sum(sizes) - 1)
    sample: dict[Side, list[str]] = {side: [] for side in SIDES}
    first = 0
    for part, size in enumerate(sizes):
        own = chosen[(chosen >= first) & (chosen < first + size)] - first
        first += size
        with _texts(work, part) as texts:
            for side in SIDES:
                sample[side] += texts[side].lines(own)
    return sample


def encode_parts(
    tokenizers: Tokenizers, place: Path, work: Path, parts: Sequence[int], workers: int, progress: Progress
) -> None:
    """Write the ids of those of `parts` whose ids are missing; duplicates and overlong pairs are among them.

    `tokenizers` are those in the folder `place`, where the workers find them.
    """
    missing = [part for part in parts if not encoded_part(work, part).exists()]
    starts = {part: range(0, len(_numbers(work, part)), BLOCK_PAIRS) for part in parts}
    blocks, whole = (sum(len(starts[part]) for part in some) for some in (missing, parts))
    total = sum(len(_numbers(work, part)) for part in parts)
    tasks = _encode_tasks(place, tokenizers.fingerprint, work, {part: starts[part] for part in missing})
    encoded = in_order(encode_block, tasks, max(1, min(workers, blocks)))
    done = whole - blocks
    for part in missing:
        with written_whole(encoded_part(work, part)) as folder, ExitStack() as stack:
            writers = {
                side: _IdsWriter(folder, side, token_type(tokenizers.side(side)), stack) for side in SIDES
            }
            for both in islice(encoded, len(starts[part])):
                for side, ids in zip(SIDES, both, strict=True):
                    writers[side].append(ids)
                done += 1
                progress("encoding", min(done * BLOCK_PAIRS, total), total)
    # A generator that is not asked once more would not let its workers go.
    next(iter(encoded), None)


class _IdsWriter:
    """Writes the ids of one side of a part."""

    def __init__(self, folder: Path, side: Side, dtype: type, stack: ExitStack) -> None:
        self._tokens = stack.enter_context(ArrayWriter(folder / f"{side}.tokens.npy", dtype))
        self._lengths = stack.enter_context(ArrayWriter(folder / f"{side}.lengths.npy", np.int64))

    def append(self, ids: EncodedSide) -> None:
        """Add sentences."""
        self._tokens.append(ids.tokens)
        self._lengths.append(ids.lengths)


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


def merge_parts(
    config: PreprocessConfig,
    tokenizers: Tokenizers,
    folder: Path,
    work: Path,
    parts: int,
    report: FilterReport,
    progress: Progress,
) -> dict[str, Any]:
    """Write ids and text of all parts to `folder`, without duplicates and overlong pairs.

    Returns the description of the split for the manifest.
    """
    # Only now: a part's worker sees no other part, so duplicates can't be found while cleaning.
    hashes = [clean_part(work, part) / HASHES for part in range(parts)]
    skip = repeated(hashes, work) if config.filter.duplicates else None
    total = sum(len(_numbers(work, part)) for part in range(parts))
    drops, first = _Drops(report), 0
    with ExitStack() as stack:
        writers = {
            side: stack.enter_context(_SideWriter(folder, side, tokenizers.side(side))) for side in SIDES
        }
        for part in range(parts):
            with _texts(work, part) as texts:
                numbers, pairs = _numbers(work, part), len(texts["source"])
                ids = {side: _IdsReader(encoded_part(work, part), side) for side in SIDES}
                for start in range(0, pairs, BLOCK_PAIRS):
                    stop = min(start + BLOCK_PAIRS, pairs)
                    source, target = (ids[side].read(start, stop) for side in SIDES)
                    repeats = None if skip is None else skip[first + start : first + stop]
                    block = kept_of(source, target, repeats, config.filter.max_subwords)
                    for side in SIDES:
                        writers[side].append_kept(block.side(side), texts[side], start, block.kept)
                    drops.record(first + start, block, numbers[start:stop], texts, start)
                    progress("merging", first + stop, total)
            first += pairs
        split = {"role": TRAIN, "pairs": writers["source"].pairs}
        split |= {f"{side}_{key}": value for side in SIDES for key, value in writers[side].counts().items()}
    if not split["pairs"]:
        raise _nothing_left(report)
    return split


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
    """Counts in the report pairs that are dropped only when all is merged: duplicates and overlong ones."""

    def __init__(self, report: FilterReport) -> None:
        self._corpora = report.of_role("train")
        self._ends = np.cumsum([corpus.kept for corpus in self._corpora])

    def record(
        self,
        first: int,
        block: EncodedBlock,
        numbers: NDArray[np.int64],
        texts: Mapping[Side, TextReader],
        start: int,
    ) -> None:
        """Count the dropped pairs of a block that begins with pair `first` of all cleaned text.

        `numbers` are those of its pairs in their corpora; in `texts` it begins at `start`.
        """
        for i in np.flatnonzero(~block.kept):
            # The cleaned text is all corpora one after another; `_ends` are their ends before any was dropped
            # here.
            corpus = self._corpora[int(np.searchsorted(self._ends, first + int(i), side="right"))]
            reason = SUBWORDS if block.too_long[i] else DUPLICATE
            corpus.kept -= 1
            if corpus.dropped.count(reason, int(numbers[i])):
                here = start + int(i)
                source, target = (texts[side].content(here, here + 1)[:-1].decode() for side in SIDES)
                corpus.dropped.keep(reason, int(numbers[i]), source, target)


def _clean_tasks(
    inputs: Sequence[Input], config: PreprocessConfig, recipe: Recipe, wanted: frozenset[int]
) -> Iterator[CleanTask]:
    """The tasks of the blocks with these numbers, counted over all corpora; the others are only read."""
    number = 0
    for item in inputs:
        count = _blocks(item.pairs)
        if wanted.isdisjoint(range(number, number + count)):
            number += count
            continue
        for block in item.corpus.blocks(BLOCK_PAIRS):
            if number in wanted:
                yield CleanTask(block, item.corpus, recipe, config.filter, config.corpus.invalid_utf8)
            number += 1


def _encode_tasks(
    place: Path, fingerprint: str, work: Path, starts: Mapping[int, range]
) -> Iterator[EncodeTask]:
    for part, of_part in starts.items():
        with _texts(work, part) as texts:
            for start in of_part:
                stop = min(start + BLOCK_PAIRS, len(texts["source"]))
                source, target = (texts[side].extent(start, stop) for side in SIDES)
                yield EncodeTask(place, fingerprint, source, target)


def _nothing_left(report: FilterReport) -> UserError:
    return UserError(f"no training pair is left ({report.reasons()}); look at the corpus, or relax [filter].")


def _owners(inputs: Sequence[Input]) -> list[int]:
    """The number of its corpus, of each block."""
    return [owner for owner, item in enumerate(inputs) for _ in range(_blocks(item.pairs))]


def _blocks_of(part: int, blocks: int) -> range:
    return range(part * BLOCKS_A_PART, min((part + 1) * BLOCKS_A_PART, blocks))


def _blocks(pairs: int) -> int:
    return -(-pairs // BLOCK_PAIRS)


def _numbers(work: Path, part: int) -> NDArray[np.int64]:
    numbers: NDArray[np.int64] = np.load(clean_part(work, part) / NUMBERS, mmap_mode="r")
    return numbers


def _text_writer(folder: Path, side: Side) -> TextWriter:
    return TextWriter(folder / f"{side}.txt", folder / f"{side}.lines.npy")


@contextmanager
def _texts(work: Path, part: int) -> Iterator[dict[Side, TextReader]]:
    """The prepared text of a part; few files are open at a time, however many parts there are."""
    folder = clean_part(work, part)
    with ExitStack() as stack:
        yield {
            side: stack.enter_context(TextReader(folder / f"{side}.txt", folder / f"{side}.lines.npy"))
            for side in SIDES
        }
