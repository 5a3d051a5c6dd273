"""Counting pairs by what was found about them, and keeping a few of each to look at."""

from collections import Counter
from dataclasses import dataclass, field

SAMPLES = 5
LONGEST_SAMPLE = 200
SPREAD = 0x9E3779B97F4A7C15
"""Multiplying by this and keeping 64 bits shuffles numbers, so the least results are spread evenly."""


@dataclass(frozen=True, slots=True, order=True)
class Sample:
    """One pair, and its number in its corpus."""

    rank: int
    number: int
    source: str
    target: str


@dataclass(slots=True)
class Tally:
    """Findings by reason; the samples kept do not depend on the order in which pairs are added."""

    counts: Counter[str] = field(default_factory=Counter)
    samples: dict[str, list[Sample]] = field(default_factory=dict)

    def count(self, reason: str, number: int) -> bool:
        """Count a pair; whether it is wanted as a sample."""
        self.counts[reason] += 1
        kept = self.samples.setdefault(reason, [])
        return len(kept) < SAMPLES or _rank(number) < kept[-1].rank

    def keep(self, reason: str, number: int, source: str, target: str) -> None:
        """Keep a pair as a sample."""
        sample = Sample(_rank(number), number, source[:LONGEST_SAMPLE], target[:LONGEST_SAMPLE])
        self.samples[reason] = sorted([*self.samples.get(reason, []), sample])[:SAMPLES]

    def add(self, reason: str, number: int, source: str, target: str) -> None:
        """Count a pair, and keep it where it is wanted."""
        if self.count(reason, number):
            self.keep(reason, number, source, target)

    def merge(self, other: "Tally") -> None:
        """Add what another tally counted and kept."""
        self.counts += other.counts
        for reason, samples in other.samples.items():
            self.samples[reason] = sorted([*self.samples.get(reason, []), *samples])[:SAMPLES]


def _rank(number: int) -> int:
    return number * SPREAD & (1 << 64) - 1
