"""Counts the pairs of a corpus: by reason, with samples, and by length, length ratio and score.

The histograms of lengths, ratios and scores are there to choose thresholds by.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import astuple, dataclass, field
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

Counts = NDArray[np.int64]

MOST_WORDS = 500
"""Longer sides count as this long."""

RATIO_STEP = 20
"""Ratios are counted in steps of 1/20, rounded up."""

MOST_RATIO = 10
SCORES = 2000
"""Size of the sample of scores of a corpus, spread evenly over it."""

SAMPLES = 5
LONGEST_SAMPLE = 200
SPREAD = 0x9E3779B97F4A7C15
"""A pair's rank is its number times this, modulo 2^64.

Ranks are in a shuffled order, so the pairs with the lowest ranks are spread evenly over the corpus.
"""


@dataclass(frozen=True, slots=True, order=True)
class Sample:
    """A pair, its line number in its corpus, and its rank. A tally keeps samples with the lowest ranks."""

    rank: int
    number: int
    source: str
    target: str


@dataclass(slots=True)
class Tally:
    """Counts of pairs by reason, and up to `SAMPLES` samples of each. The order of adding has no effect."""

    counts: Counter[str] = field(default_factory=Counter)
    samples: dict[str, list[Sample]] = field(default_factory=dict)

    def count(self, reason: str, number: int) -> bool:
        """Count a pair under `reason`. If the result is true, the caller must call `keep` for the pair."""
        self.counts[reason] += 1
        samples = self.samples.setdefault(reason, [])
        return len(samples) < SAMPLES or _rank(number) < samples[-1].rank

    def keep(self, reason: str, number: int, source: str, target: str) -> None:
        """Add a pair to the samples of `reason`, each side cut to `LONGEST_SAMPLE` characters. If there are
        over `SAMPLES`, drop the sample with the highest rank."""
        sample = Sample(_rank(number), number, source[:LONGEST_SAMPLE], target[:LONGEST_SAMPLE])
        self.samples[reason] = sorted([*self.samples.get(reason, []), sample])[:SAMPLES]

    def add(self, reason: str, number: int, source: str, target: str) -> None:
        """Count a pair under `reason`. If its rank is low enough, add the pair to the samples."""
        if self.count(reason, number):
            self.keep(reason, number, source, target)

    def merge(self, other: "Tally") -> None:
        """Add the counts of `other`. Per reason, keep the `SAMPLES` samples of both with the lowest ranks."""
        self.counts += other.counts
        for reason, samples in other.samples.items():
            self.samples[reason] = sorted([*self.samples.get(reason, []), *samples])[:SAMPLES]

    def state(self) -> dict[str, Any]:
        """Return the tally as values for JSON. `Tally.of` turns the result into a tally again."""
        samples = {name: [astuple(sample) for sample in samples] for name, samples in self.samples.items()}
        return {"counts": dict(self.counts), "samples": samples}

    @classmethod
    def of(cls, state: Mapping[str, Any]) -> "Tally":
        """Return the tally that `state`, a result of `Tally.state`, describes."""
        samples = {name: [Sample(*fields) for fields in rows] for name, rows in state["samples"].items()}
        return cls(Counter(state["counts"]), samples)


def _rank(number: int) -> int:
    return number * SPREAD & (1 << 64) - 1


@dataclass(slots=True)
class Shape:
    """Counts of pairs. Item i of `words` counts pairs whose longer side has i words, up to `MOST_WORDS`. Item
    i of `ratios` counts pairs with a length ratio of i / `RATIO_STEP`, rounded up."""

    words: Counts = field(default_factory=lambda: np.zeros(MOST_WORDS + 1, np.int64))
    ratios: Counts = field(default_factory=lambda: np.zeros(MOST_RATIO * RATIO_STEP + 1, np.int64))

    def add(self, source: Counts, target: Counts) -> None:
        """Count more pairs. `source` and `target` have the number of words of each pair's side."""
        longer, shorter = np.maximum(source, target), np.minimum(source, target)
        steps = -(-longer * RATIO_STEP // np.maximum(shorter, 1))
        for counts, values in ((self.words, longer), (self.ratios, steps)):
            counts += np.bincount(np.minimum(values, len(counts) - 1), minlength=len(counts))

    def merge(self, other: Self) -> None:
        """Add the counts of `other` to this shape, in place."""
        self.words += other.words
        self.ratios += other.ratios


@dataclass(slots=True)
class Shapes:
    """The shapes of kept and dropped pairs of a corpus. Also a sample of scores with pair `numbers`."""

    kept: Shape = field(default_factory=Shape)
    dropped: Shape = field(default_factory=Shape)
    numbers: Counts = field(default_factory=lambda: np.zeros(0, np.int64))
    scores: NDArray[np.float32] = field(default_factory=lambda: np.zeros(0, np.float32))

    def add_scores(self, numbers: Counts, scores: NDArray[np.float32]) -> None:
        """Add scores, except missing ones. Keep a sample of up to `SCORES`, chosen by pair numbers."""
        has_score = ~np.isnan(scores)
        numbers = np.concatenate([self.numbers, numbers[has_score]])
        scores = np.concatenate([self.scores, scores[has_score]])
        sample = np.argsort(numbers.astype(np.uint64) * np.uint64(SPREAD))[:SCORES]
        self.numbers, self.scores = numbers[sample], scores[sample]

    def merge(self, other: Self) -> None:
        """Add the counts and scores of `other` to these shapes, in place."""
        self.kept.merge(other.kept)
        self.dropped.merge(other.dropped)
        self.add_scores(other.numbers, other.scores)

    def state(self) -> dict[str, Any]:
        """Return the shapes as values for JSON. `Shapes.of` turns the result into shapes again."""
        counts = (self.kept.words, self.kept.ratios, self.dropped.words, self.dropped.ratios)
        scored = [self.numbers.tolist(), self.scores.tolist()]
        return {"counts": [values.tolist() for values in counts], "scored": scored}

    @classmethod
    def of(cls, state: Mapping[str, Any]) -> Self:
        """Return the shapes that `state`, a result of `Shapes.state`, describes."""
        words, ratios, dropped_words, dropped_ratios = (
            np.array(values, np.int64) for values in state["counts"]
        )
        numbers, scores = state["scored"]
        return cls(
            Shape(words, ratios),
            Shape(dropped_words, dropped_ratios),
            np.array(numbers, np.int64),
            np.array(scores, np.float32),
        )

    def described(self) -> dict[str, Any]:
        """Return "words" and "ratios" of kept and dropped pairs without final zeros, and sorted "scores"."""
        shapes = {"kept": self.kept, "dropped": self.dropped}
        return {
            "words": {name: np.trim_zeros(shape.words, "b").tolist() for name, shape in shapes.items()},
            "ratios": {name: np.trim_zeros(shape.ratios, "b").tolist() for name, shape in shapes.items()},
            "scores": [float(f"{score:.6g}") for score in np.sort(self.scores) if np.isfinite(score)],
        }


def words_of(content: bytes, lengths: Counts) -> Counts:
    """Return the number of words per line, 1 for an empty one. `lengths` are bytes, line feeds included."""
    if not len(lengths):
        return np.zeros(0, np.int64)
    # Prepared text has single spaces between words.
    spaces = np.frombuffer(content, np.uint8) == ord(" ")
    return 1 + np.add.reduceat(spaces, np.cumsum(lengths) - lengths, dtype=np.int64)
