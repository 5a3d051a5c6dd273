"""How long the pairs of a corpus are, how unequal their sides, and how high their scores: what thresholds
are chosen by."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from nmt_cli.data.cleaning.tally import SPREAD

Counts = NDArray[np.int64]

MOST_WORDS = 500
"""Longer sides are counted as this long."""

RATIO_STEP = 20
"""Ratios are counted in steps of a twentieth, rounded up."""

MOST_RATIO = 10
SCORES = 2000
"""Scores that are kept of a corpus, spread evenly over it."""


def _none_of(most: int) -> Counts:
    return np.zeros(most + 1, np.int64)


@dataclass(slots=True)
class Shape:
    """Pairs by the words of their longer side, and by how many of these there are for one of the other's."""

    words: Counts = field(default_factory=lambda: _none_of(MOST_WORDS))
    ratios: Counts = field(default_factory=lambda: _none_of(MOST_RATIO * RATIO_STEP))

    def add(self, source: Counts, target: Counts) -> None:
        """Count pairs whose sides have so many words."""
        longer, shorter = np.maximum(source, target), np.minimum(source, target)
        steps = -(-longer * RATIO_STEP // np.maximum(shorter, 1))
        for counts, values in ((self.words, longer), (self.ratios, steps)):
            counts += np.bincount(np.minimum(values, len(counts) - 1), minlength=len(counts))

    def merge(self, other: Self) -> None:
        """Add what another counted."""
        self.words += other.words
        self.ratios += other.ratios


@dataclass(slots=True)
class Shapes:
    """The shapes of a corpus's pairs, kept ones and others, and some of the scores of all."""

    kept: Shape = field(default_factory=Shape)
    dropped: Shape = field(default_factory=Shape)
    numbers: Counts = field(default_factory=lambda: np.zeros(0, np.int64))
    scores: NDArray[np.float32] = field(default_factory=lambda: np.zeros(0, np.float32))

    def add_scores(self, numbers: Counts, scores: NDArray[np.float32]) -> None:
        """Keep the scores of some of these pairs; which ones follows from their numbers alone."""
        told = ~np.isnan(scores)
        numbers = np.concatenate([self.numbers, numbers[told]])
        scores = np.concatenate([self.scores, scores[told]])
        least = np.argsort(numbers.astype(np.uint64) * np.uint64(SPREAD))[:SCORES]
        self.numbers, self.scores = numbers[least], scores[least]

    def merge(self, other: Self) -> None:
        """Add what another counted and kept."""
        self.kept.merge(other.kept)
        self.dropped.merge(other.dropped)
        self.add_scores(other.numbers, other.scores)

    def state(self) -> dict[str, Any]:
        """For JSON, which `of` takes back."""
        counts = (self.kept.words, self.kept.ratios, self.dropped.words, self.dropped.ratios)
        scored = (self.numbers, self.scores)
        return {"counts": [each.tolist() for each in counts], "scored": [each.tolist() for each in scored]}

    @classmethod
    def of(cls, state: Mapping[str, Any]) -> Self:
        """The inverse of `state`."""
        words, ratios, dropped_words, dropped_ratios = (np.array(some, np.int64) for some in state["counts"])
        numbers, scores = state["scored"]
        return cls(
            Shape(words, ratios),
            Shape(dropped_words, dropped_ratios),
            np.array(numbers, np.int64),
            np.array(scores, np.float32),
        )

    def described(self) -> dict[str, Any]:
        """The counts without zeros at their ends, and the scores in order."""
        shapes = {"kept": self.kept, "dropped": self.dropped}
        return {
            "words": {name: _trimmed(shape.words) for name, shape in shapes.items()},
            "ratios": {name: _trimmed(shape.ratios) for name, shape in shapes.items()},
            "scores": [float(f"{score:.6g}") for score in np.sort(self.scores) if np.isfinite(score)],
        }


def words_of(content: bytes, lengths: Counts) -> Counts:
    """How many words each line of prepared text has; `lengths` are the bytes of each, line feed included."""
    if not len(lengths):
        return np.zeros(0, np.int64)
    # Prepared text has single blanks between words.
    blanks = np.frombuffer(content, np.uint8) == ord(" ")
    return 1 + np.add.reduceat(blanks, np.cumsum(lengths) - lengths, dtype=np.int64)


def _trimmed(counts: Counts) -> list[int]:
    return [int(count) for count in np.trim_zeros(counts, "b")]
