"""A block of raw pairs to prepared, filtered text: the work of one process on one block."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache

import numpy as np
from numpy.typing import NDArray

from nmt_cli.corpus.parallel import Block, Corpus
from nmt_cli.corpus.utf8 import decoded
from nmt_cli.data.config import FilterConfig
from nmt_cli.data.duplicates import pair_hash
from nmt_cli.data.filters import EMPTY, INVALID, WORDS, Filters
from nmt_cli.data.tally import Tally
from nmt_cli.text.tokenizers import Preparer, Recipe

NUL = "NUL bytes taken out"
REPLACED = "invalid UTF-8 replaced"


@dataclass(frozen=True, slots=True)
class CleanTask:
    """A block of raw pairs, and all that decides which are kept and how they are prepared."""

    block: Block
    corpus: Corpus
    recipe: Recipe
    filter: FilterConfig
    invalid_utf8: str


@dataclass(frozen=True, slots=True)
class Lines:
    """Lines that end in line feeds, and the bytes of each."""

    content: bytes
    lengths: NDArray[np.int64]


@dataclass(slots=True)
class CleanBlock:
    """The kept pairs of a block as prepared text, and counts of the others by reason."""

    source: Lines
    target: Lines
    numbers: NDArray[np.int64]
    """The number of each kept pair in its corpus, counted from 1."""

    hashes: bytes
    """`pair_hash` of each kept pair, one after another; empty unless duplicates are looked for."""

    dropped: Tally = field(default_factory=Tally)
    noted: Tally = field(default_factory=Tally)


def clean(task: CleanTask) -> CleanBlock:
    """Decode, prepare and filter the pairs of one block."""
    prepare, filters = _tools(task.recipe, task.filter)
    dropped, noted = Tally(), Tally()
    sources: list[str] = []
    targets: list[str] = []
    numbers: list[int] = []
    for number, raw in enumerate(
        zip(task.block.sources, task.block.targets, strict=True), start=task.block.first
    ):
        pair = _decoded_pair(task, number, *raw, dropped, noted)
        if pair is None:
            continue
        if any(map(filters.too_long, pair)):
            # Before Moses splits words off, which of a megabyte on a line takes minutes. What normalises to
            # nothing is an empty side, as it would be if it were prepared.
            dropped.add(WORDS if all(map(prepare.normalized, pair)) else EMPTY, number, *pair)
            continue
        masked = task.recipe.masked(*pair)
        source, target = prepare("source", masked[0]), prepare("target", masked[1])
        if reason := filters.reason(source, target):
            dropped.add(reason, number, *pair)
            continue
        sources.append(source)
        targets.append(target)
        numbers.append(number)
    # Of prepared text: pairs that differ only in what preparing removes are duplicates.
    hashes = map(pair_hash, sources, targets) if task.filter.duplicates else ()
    return CleanBlock(
        _joined(sources), _joined(targets), np.array(numbers, np.int64), b"".join(hashes), dropped, noted
    )


@cache
def _tools(recipe: Recipe, config: FilterConfig) -> tuple[Preparer, Filters]:
    """Made once in each worker process, not for each block."""
    return Preparer(recipe), Filters(config)


def _decoded_pair(
    task: CleanTask, number: int, source: bytes, target: bytes, dropped: Tally, noted: Tally
) -> tuple[str, str] | None:
    try:
        # Nearly all lines are UTF-8: the user's rule is looked at only where one is not.
        pair = source.decode(), target.decode()
    except UnicodeDecodeError:
        mended = _mended_pair(task, number, source, target)
        if mended is None:
            # Samples are kept as text, which these bytes are not.
            dropped.add(INVALID, number, ascii(source), ascii(target))
            return None
        pair = mended
        noted.add(REPLACED, number, *pair)
    if b"\0" in source or b"\0" in target:
        noted.add(NUL, number, *pair)
    return pair


def _mended_pair(task: CleanTask, number: int, source: bytes, target: bytes) -> tuple[str, str] | None:
    """The pair by the user's rule for bytes that are not UTF-8; None where it is to be skipped."""
    mended_source = decoded(source, task.invalid_utf8, task.corpus.place("source", number))
    mended_target = decoded(target, task.invalid_utf8, task.corpus.place("target", number))
    return None if mended_source is None or mended_target is None else (mended_source, mended_target)


def _joined(lines: Sequence[str]) -> Lines:
    encoded = [line.encode() + b"\n" for line in lines]
    return Lines(b"".join(encoded), np.fromiter(map(len, encoded), np.int64, len(encoded)))
