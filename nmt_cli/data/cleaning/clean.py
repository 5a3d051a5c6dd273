"""Cleaning of one block of raw pairs, as a task for a worker process.

A pair is decoded, compared with held-out pairs, prepared and filtered. The prepared text of kept pairs, and
counts of all others, go back to the main process.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from math import log
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nmt_cli.corpus.parallel import Corpus, PairBlock
from nmt_cli.corpus.raw_files import decoded
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
    """A block of raw pairs, and the settings that decide which pairs are kept and how they are prepared."""

    block: PairBlock
    corpus: Corpus
    recipe: Recipe
    filter: FilterConfig
    invalid_utf8: str
    held_out: Sequence[HeldOut] = ()
    """The pairs that the training set must not have."""

    tag: str = ""
    """A symbol that is put before each source. The filters do not see it."""

    hashed: frozenset[Hashed] = frozenset()
    """The kinds of text that are hashed, to find repetitions over all corpora."""


@dataclass(frozen=True, slots=True)
class Lines:
    """Lines with their line feeds, as one text, and the number of bytes of each line."""

    content: bytes
    lengths: NDArray[np.int64]


@dataclass(slots=True)
class CleanBlock:
    """The kept pairs of a block as prepared text, and counts of the dropped and noted pairs by reason."""

    source: Lines
    target: Lines
    numbers: NDArray[np.int64]
    """The number, from 1, of each kept pair in its corpus."""

    hashes: dict[Hashed, bytes]
    """The hashes of all kept pairs, concatenated, for each kind of text. b"" for a kind that the task does
    not need."""

    qualities: list[NDArray[np.float32]]
    """For each kept pair, its score and, less important, how close the lengths of its sides are. Empty if no
    sides are hashed."""

    dropped: Tally
    noted: Tally
    shapes: Shapes


class _Pair(NamedTuple):
    """A kept pair as prepared text without the tag, with its number in the corpus and its score."""

    number: int
    source: str
    target: str
    score: float


def clean(task: CleanTask) -> CleanBlock:
    """Decode, filter and prepare the pairs of one block. Return the kept pairs, and counts of the others.

    Invalid UTF-8, held-out pairs and low scores are dropped before the other filters apply. Repetitions are
    kept, because other blocks may have better ones. Raise `UserError` for invalid UTF-8 if
    `task.invalid_utf8` is "error".
    """
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
    """Return the cleaned block of the kept `pairs`, with tags, and with the hashes and qualities that the
    task needs."""
    sources = [f"{task.tag} {pair.source}" if task.tag else pair.source for pair in pairs]
    targets = [pair.target for pair in pairs]
    source, target = _joined(sources), _joined(targets)
    words = words_of(source.content, source.lengths) - bool(task.tag)
    shapes = Shapes()
    shapes.kept.add(words, words_of(target.content, target.lengths))
    # Pairs that are equal after preparation are duplicates.
    hashes: dict[Hashed, Iterable[bytes]] = {
        "pair": map(pair_hash, sources, targets),
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
    """Return two arrays with an item per pair: its score, and the closeness of its lengths.

    A missing score is minus infinity. The closeness is minus the absolute logarithm of the ratio of
    characters, so it is 0 for equal lengths.
    """
    scores = np.array([pair.score for pair in pairs], np.float32)
    scores[np.isnan(scores)] = -np.inf
    closeness = [-abs(log((len(pair.source) + 1) / (len(pair.target) + 1))) for pair in pairs]
    return [scores, np.array(closeness, np.float32)]


@cache
def _tools(recipe: Recipe, config: FilterConfig) -> tuple[Preparer, Filters]:
    """Return the preparer and the filters. They are made once per process."""
    return Preparer(recipe), Filters(config, recipe.source_lang, recipe.target_lang)


def _decoded_pair(
    task: CleanTask, number: int, source: bytes, target: bytes, dropped: Tally, noted: Tally
) -> tuple[str, str] | None:
    """Return a pair as text. Return None for a pair to skip, because it is not UTF-8, and count it in
    `dropped`.

    A pair with replaced bytes or NUL characters is counted in `noted`. Raise `UserError` for invalid UTF-8 if
    `task.invalid_utf8` is "error".
    """
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
    """Return `lines` as one text in bytes with a line feed after each, and their lengths. No line may contain
    a line feed."""
    # Encoding all at once takes a quarter of the time.
    content = "\n".join([*lines, ""]).encode()
    ends = np.flatnonzero(np.frombuffer(content, np.uint8) == ord("\n"))
    return Lines(content, np.diff(ends, prepend=-1))
