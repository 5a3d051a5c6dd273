"""Outcomes of injected faults, counted by kind and printed as a table for the README."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Literal, Self

Outcome = Literal["clean", "identical", "wrong"]
"""Reported in one line, the same result as without the fault, or neither."""


@dataclass(slots=True)
class Tally:
    """Counts of the outcomes of each fault."""

    counts: dict[str, Counter[Outcome]] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)
    """A line for each wrong outcome: the fault, and how to reproduce it."""

    def add(self, fault: str, outcome: Outcome, message: str = "") -> None:
        """Count one fault. `message` describes a wrong outcome and how to reproduce it."""
        self.counts.setdefault(fault, Counter())[outcome] += 1
        if outcome == "wrong":
            self.wrong.append(f"{fault}: {message}")

    def sorted(self) -> Self:
        """Sort the kinds by name."""
        self.counts = dict(sorted(self.counts.items()))
        return self


def print_table(tally: Tally, kinds: str = "fault") -> None:
    """Print one row per kind and the sum, then the wrong outcomes."""
    print(f"| {kinds} | injected | clean | identical | wrong |\n|---|---|---|---|---|")
    for kind, counts in [*tally.counts.items(), ("all", sum(tally.counts.values(), Counter[Outcome]()))]:
        row = (counts.total(), counts["clean"], counts["identical"], counts["wrong"])
        print(f"| {kind} | {' | '.join(f'{count:,}' for count in row)} |")
    for line in tally.wrong:
        print(f"\nwrong: {line}")
