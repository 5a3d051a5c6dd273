"""Counts of the pairs of a corpus: by reason, with samples, and by length, ratio of lengths, and score.

Blocks are counted in several processes and then merged. So all samples depend on the numbers of the pairs
alone, not on the order of merging. The histograms help to choose thresholds.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import astuple, dataclass, field
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

Counts = NDArray[np.int64]

MOST_WORDS = 500
"""The highest number of words that is counted. Longer sides count as this long."""

RATIO_STEP = 20
"""The number of steps per unit of the ratio. Ratios are rounded up to a step."""

MOST_RATIO = 10
SCORES = 2000
"""The size of the sample of a corpus's scores."""

SAMPLES = 5
LONGEST_SAMPLE = 200
SPREAD = 0x9E3779B97F4A7C15
"""A pair's rank is its number times this, modulo 2^64. The factor shuffles the ranks, so the pairs with the
lowest ranks are spread evenly over the corpus."""


@dataclass(frozen=True, slots=True, order=True)
class Sample:
    """A pair as an example, with its number in the corpus and its rank."""

    rank: int
    number: int
    source: str
    target: str


@dataclass(slots=True)
class Tally:
    """Counts of pairs by reason, and up to `SAMPLES` samples for each reason. The samples are the pairs with
    the lowest ranks."""

    counts: Counter[str] = field(default_factory=Counter)
    samples: dict[str, list[Sample]] = field(default_factory=dict)

    def count(self, reason: str, number: int) -> bool:
        """Count a pair. Return whether it belongs to the samples, so that the caller must also call
        `keep`."""
        # Apart from `keep`, because the text of a pair may have to be read from disk.
        self.counts[reason] += 1
        samples = self.samples.setdefault(reason, [])
        return len(samples) < SAMPLES or _rank(number) < samples[-1].rank

    def keep(self, reason: str, number: int, source: str, target: str) -> None:
        """Add a pair to the samples of `reason`, with each side cut to `LONGEST_SAMPLE` characters. If there
        are too many, drop the one with the highest rank."""
        sample = Sample(_rank(number), number, source[:LONGEST_SAMPLE], target[:LONGEST_SAMPLE])
        self.samples[reason] = sorted([*self.samples.get(reason, []), sample])[:SAMPLES]

    def add(self, reason: str, number: int, source: str, target: str) -> None:
        """Count a pair, and add it to the samples if its rank is low enough."""
        if self.count(reason, number):
            self.keep(reason, number, source, target)

    def merge(self, other: "Tally") -> None:
        """Add the counts of `other`. The samples with the lowest ranks of both are kept."""
        self.counts += other.counts
        for reason, samples in other.samples.items():
            self.samples[reason] = sorted([*self.samples.get(reason, []), *samples])[:SAMPLES]

    def state(self) -> dict[str, Any]:
        """Return the tally in types of JSON, for `Tally.of`."""
        samples = {name: [astuple(sample) for sample in samples] for name, samples in self.samples.items()}
        return {"counts": dict(self.counts), "samples": samples}

    @classmethod
    def of(cls, state: Mapping[str, Any]) -> "Tally":
        """Return the tally with this `state`."""
        samples = {name: [Sample(*fields) for fields in rows] for name, rows in state["samples"].items()}
        return cls(Counter(state["counts"]), samples)


def _rank(number: int) -> int:
    # Cut to 64 bits, as the products of NumPy in `add_scores` are.
    return number * SPREAD & (1 << 64) - 1


@dataclass(slots=True)
class Shape:
    """Two histograms of pairs.

    Item i of `words` is the number of pairs whose longer side has i words. Item i of `ratios` is the number
    of pairs whose ratio of lengths is i / `RATIO_STEP`, rounded up. The last items also count all pairs
    beyond.
    """

    words: Counts = field(default_factory=lambda: np.zeros(MOST_WORDS + 1, np.int64))
    ratios: Counts = field(default_factory=lambda: np.zeros(MOST_RATIO * RATIO_STEP + 1, np.int64))

    def add(self, source: Counts, target: Counts) -> None:
        """Count pairs. `source` and `target` have the number of words of each pair's side."""
        longer, shorter = np.maximum(source, target), np.minimum(source, target)
        steps = -(-longer * RATIO_STEP // np.maximum(shorter, 1))
        for counts, values in ((self.words, longer), (self.ratios, steps)):
            counts += np.bincount(np.minimum(values, len(counts) - 1), minlength=len(counts))

    def merge(self, other: Self) -> None:
        """Add the counts of `other`."""
        self.words += other.words
        self.ratios += other.ratios


@dataclass(slots=True)
class Shapes:
    """The histograms of the kept and the dropped pairs of a corpus, and a sample of scores with the numbers
    of their pairs."""

    kept: Shape = field(default_factory=Shape)
    dropped: Shape = field(default_factory=Shape)
    numbers: Counts = field(default_factory=lambda: np.zeros(0, np.int64))
    scores: NDArray[np.float32] = field(default_factory=lambda: np.zeros(0, np.float32))

    def add_scores(self, numbers: Counts, scores: NDArray[np.float32]) -> None:
        """Add scores to the sample. Missing scores are left out. If there are more than `SCORES`, the ones
        with the lowest ranks are kept."""
        has_score = ~np.isnan(scores)
        numbers = np.concatenate([self.numbers, numbers[has_score]])
        scores = np.concatenate([self.scores, scores[has_score]])
        sample = np.argsort(numbers.astype(np.uint64) * np.uint64(SPREAD))[:SCORES]
        self.numbers, self.scores = numbers[sample], scores[sample]

    def merge(self, other: Self) -> None:
        """Add the counts and scores of `other`."""
        self.kept.merge(other.kept)
        self.dropped.merge(other.dropped)
        self.add_scores(other.numbers, other.scores)

    def state(self) -> dict[str, Any]:
        """Return the counts and scores in types of JSON, for `Shapes.of`."""
        counts = (self.kept.words, self.kept.ratios, self.dropped.words, self.dropped.ratios)
        scored = [self.numbers.tolist(), self.scores.tolist()]
        return {"counts": [values.tolist() for values in counts], "scored": scored}

    @classmethod
    def of(cls, state: Mapping[str, Any]) -> Self:
        """Return the shapes with this `state`."""
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
        """Return the data of the page: "words" and "ratios" of kept and dropped pairs without zeros at the
        end, and "scores" in ascending order."""
        shapes = {"kept": self.kept, "dropped": self.dropped}
        return {
            "words": {name: np.trim_zeros(shape.words, "b").tolist() for name, shape in shapes.items()},
            "ratios": {name: np.trim_zeros(shape.ratios, "b").tolist() for name, shape in shapes.items()},
            "scores": [float(f"{score:.6g}") for score in np.sort(self.scores) if np.isfinite(score)],
        }


def words_of(content: bytes, lengths: Counts) -> Counts:
    """Return the number of words of each line in `content`, 1 for an empty line. `lengths` has the bytes of
    each line, with its line feed."""
    if not len(lengths):
        return np.zeros(0, np.int64)
    # Prepared text has single spaces between words.
    spaces = np.frombuffer(content, np.uint8) == ord(" ")
    return 1 + np.add.reduceat(spaces, np.cumsum(lengths) - lengths, dtype=np.int64)
