"""Counts of pairs by reason, with a few samples of each reason."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import astuple, dataclass, field
from typing import Any

SAMPLES = 5
LONGEST_SAMPLE = 200
SPREAD = 0x9E3779B97F4A7C15
"""Numbers times this, modulo 2^64, come in a shuffled order, so that the pairs with the least products, which
are kept as samples, are spread evenly over the corpus."""


@dataclass(frozen=True, slots=True, order=True)
class Sample:
    """One pair, its number in its corpus, and its rank among possible samples: the least are kept."""

    rank: int
    number: int
    source: str
    target: str


@dataclass(slots=True)
class Tally:
    """Counts by reason, and samples, which do not depend on the order in which pairs are added."""

    counts: Counter[str] = field(default_factory=Counter)
    samples: dict[str, list[Sample]] = field(default_factory=dict)

    def count(self, reason: str, number: int) -> bool:
        """Count a pair under `reason`; returns whether `keep` should be called for it too."""
        self.counts[reason] += 1
        kept = self.samples.setdefault(reason, [])
        return len(kept) < SAMPLES or _rank(number) < kept[-1].rank

    def keep(self, reason: str, number: int, source: str, target: str) -> None:
        """Keep a pair as a sample."""
        sample = Sample(_rank(number), number, source[:LONGEST_SAMPLE], target[:LONGEST_SAMPLE])
        self.samples[reason] = sorted([*self.samples.get(reason, []), sample])[:SAMPLES]

    def add(self, reason: str, number: int, source: str, target: str) -> None:
        """Count a pair under `reason`, and keep it if it is to be a sample."""
        if self.count(reason, number):
            self.keep(reason, number, source, target)

    def merge(self, other: "Tally") -> None:
        """Add what another tally counted and kept."""
        self.counts += other.counts
        for reason, samples in other.samples.items():
            self.samples[reason] = sorted([*self.samples.get(reason, []), *samples])[:SAMPLES]

    def described(self) -> dict[str, Any]:
        """For JSON, which `of` takes back."""
        samples = {reason: [astuple(one) for one in some] for reason, some in self.samples.items()}
        return {"counts": dict(self.counts), "samples": samples}

    @classmethod
    def of(cls, described: Mapping[str, Any]) -> "Tally":
        """The inverse of `described`."""
        samples = {reason: [Sample(*one) for one in some] for reason, some in described["samples"].items()}
        return cls(Counter(described["counts"]), samples)


def _rank(number: int) -> int:
    return number * SPREAD & (1 << 64) - 1
