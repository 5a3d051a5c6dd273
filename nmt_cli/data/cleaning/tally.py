"""Counts pairs by reason, and keeps a few samples of each reason."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import astuple, dataclass, field
from typing import Any

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
