"""Cleans a block of raw pairs: the work of one process on one block."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from math import log
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nmt_cli.corpus.files import decoded
from nmt_cli.corpus.parallel import Block, Corpus
from nmt_cli.corpus.records import NO_SCORE
from nmt_cli.data.cleaning.counts import Shapes, Tally, words_of
from nmt_cli.data.cleaning.duplicates import Hashed, pair_hash, side_hash
from nmt_cli.data.cleaning.filters import EMPTY, HELD_OUT, INVALID, SCORE, WORDS, Filters
from nmt_cli.data.cleaning.held_out import HeldOut, occurring
from nmt_cli.data.config import FilterConfig
from nmt_cli.text.tokenizers import Preparer, Recipe

NUL = "NUL bytes taken out"
REPLACED = "invalid UTF-8 replaced"


@dataclass(frozen=True, slots=True)
class CleanTask:
    """A block of raw pairs, and the settings that decide which pairs to keep and how to prepare pairs."""

    block: Block
    corpus: Corpus
    recipe: Recipe
    filter: FilterConfig
    invalid_utf8: str
    held_out: Sequence[HeldOut] = ()
    """The pairs that the training set must not have."""

    tag: str = ""
    """A symbol at the start of each source. Filters do not see it."""

    hashed: frozenset[Hashed] = frozenset()
    """The kinds of text that are compared to find repetitions in any corpus."""


@dataclass(frozen=True, slots=True)
class Lines:
    """Lines that end in line feeds, and the number of bytes of each."""

    content: bytes
    lengths: NDArray[np.int64]


@dataclass(slots=True)
class CleanBlock:
    """The kept pairs of a block as prepared text. Also counts of dropped and noted pairs by reason."""

    source: Lines
    target: Lines
    numbers: NDArray[np.int64]
    """The line number, from 1, of each kept pair in its corpus."""

    hashes: dict[Hashed, bytes]
    """The concatenated `pair_hash` or `side_hash` of each kept pair. Empty if the task needs no hashes."""

    qualities: list[NDArray[np.float32]]
    """Score and, less important, closeness of lengths of each kept pair. Empty without hashes of sides."""

    dropped: Tally
    noted: Tally
    shapes: Shapes


class _Pair(NamedTuple):
    """A kept pair as prepared text without the tag, its line number in the corpus, and its score."""

    number: int
    source: str
    target: str
    score: float


def clean(task: CleanTask) -> CleanBlock:
    """Decode, filter and prepare the pairs of one block. Return the kept pairs, and counts of dropped pairs
    by reason. First drop invalid UTF-8 (if set to "skip"), held-out pairs and low scores, then apply the
    other filters. Raise `UserError` for invalid UTF-8 if `task.invalid_utf8` is "error". Keep repetitions."""
    prepare, filters = _tools(task.recipe, task.filter)
    block = task.block
    held_out = {
        number
        for one in task.held_out
        for number in occurring(block, one, one.by or task.filter.decontaminate_by)
    }
    scores = block.scores or [NO_SCORE] * len(block.sources)
    kept: list[_Pair] = []
    lengths: list[tuple[int, int]] = []
    dropped, noted = Tally(), Tally()
    for number, (source, target, score) in enumerate(
        zip(block.sources, block.targets, scores, strict=True), start=block.first
    ):
        pair = _decoded_pair(task, number, source, target, dropped, noted)
        if pair is None:
            continue
        prepared = pair
        if number in held_out:
            reason: str | None = HELD_OUT
        elif filters.too_low(score):
            reason = SCORE
        elif filters.too_long(*pair):
            # Moses would take minutes for a line of a megabyte, so this comes first. A side that normalizes
            # to nothing counts as empty, as it does after preparation.
            reason = WORDS if all(map(prepare.normalized, pair)) else EMPTY
        else:
            source_text, target_text = task.recipe.masked(*pair)
            # The tag must be the first symbol, and filters do not see it.
            tagged = prepare("source", f"{task.tag} {source_text}" if task.tag else source_text)
            prepared = tagged.removeprefix(task.tag).lstrip(), prepare("target", target_text)
            reason = filters.reason(*prepared) or filters.raw_reason(*pair)
        if reason:
            dropped.add(reason, number, *pair)
            lengths.append((prepared[0].count(" ") + 1, prepared[1].count(" ") + 1))
        else:
            kept.append(_Pair(number, *prepared, score))
    cleaned = _block(task, kept, dropped, noted)
    if lengths:
        cleaned.shapes.dropped.add(*np.array(lengths).T)
    if block.scores:
        numbers = np.arange(block.first, block.first + len(scores))
        cleaned.shapes.add_scores(numbers, np.array(scores, np.float32))
    return cleaned


def _block(task: CleanTask, pairs: Sequence[_Pair], dropped: Tally, noted: Tally) -> CleanBlock:
    """Return a block of the kept `pairs` with tags. Add the hashes and qualities to find repetitions by."""
    sources = [f"{task.tag} {pair.source}" if task.tag else pair.source for pair in pairs]
    targets = [pair.target for pair in pairs]
    source, target = _joined(sources), _joined(targets)
    words = words_of(source.content, source.lengths) - bool(task.tag)
    shapes = Shapes()
    shapes.kept.add(words, words_of(target.content, target.lengths))
    # Pairs that are equal after preparation are duplicates.
    hashes: dict[Hashed, Iterable[bytes]] = {
        "pair": map(pair_hash, sources, targets),
        "source": map(side_hash, sources),
        "target": map(side_hash, targets),
    }
    return CleanBlock(
        source,
        target,
        np.array([pair.number for pair in pairs], np.int64),
        {name: b"".join(values) if name in task.hashed else b"" for name, values in hashes.items()},
        _qualities(pairs) if task.hashed & {"source", "target"} else [],
        dropped,
        noted,
        shapes,
    )


def _qualities(pairs: Sequence[_Pair]) -> list[NDArray[np.float32]]:
    """Return two arrays: each pair's score, minus infinity if missing, and the closeness of its lengths. That
    is 0 for equal lengths in characters, else minus the absolute logarithm of their ratio."""
    scores = np.array([pair.score for pair in pairs], np.float32)
    scores[np.isnan(scores)] = -np.inf
    closeness = [-abs(log((len(pair.source) + 1) / (len(pair.target) + 1))) for pair in pairs]
    return [scores, np.array(closeness, np.float32)]


@cache
def _tools(recipe: Recipe, config: FilterConfig) -> tuple[Preparer, Filters]:
    """Return the preparer and the filters for `recipe` and `config`, made once per process."""
    return Preparer(recipe), Filters(config, recipe.source_lang, recipe.target_lang)


def _decoded_pair(
    task: CleanTask, number: int, source: bytes, target: bytes, dropped: Tally, noted: Tally
) -> tuple[str, str] | None:
    """Return a pair as text, or None to skip invalid UTF-8. Count a skipped pair in `dropped`, and a pair
    with NUL or replaced bytes in `noted`. Raise `UserError` if `task.invalid_utf8` is "error"."""
    try:
        # Nearly all lines are valid UTF-8, so the user's rule is rarely needed.
        pair = source.decode(), target.decode()
    except UnicodeDecodeError:
        source_text = decoded(source, task.invalid_utf8, task.corpus.location("source", number))
        target_text = decoded(target, task.invalid_utf8, task.corpus.location("target", number))
        if source_text is None or target_text is None:
            # Samples are text, which these bytes are not.
            dropped.add(INVALID, number, ascii(source), ascii(target))
            return None
        pair = source_text, target_text
        noted.add(REPLACED, number, *pair)
    if b"\0" in source or b"\0" in target:
        noted.add(NUL, number, *pair)
    return pair


def _joined(lines: Sequence[str]) -> Lines:
    """Return `lines`, none with a line feed, as bytes with a line feed after each, and their lengths."""
    # Encoding all at once takes a quarter of the time.
    content = "\n".join([*lines, ""]).encode()
    ends = np.flatnonzero(np.frombuffer(content, np.uint8) == ord("\n"))
    return Lines(content, np.diff(ends, prepend=-1))
