"""Outcomes of injected faults, counted by kind and printed as a table for the README."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Literal

Outcome = Literal["clean", "identical", "wrong"]
"""clean: reported in one line. identical: the same result as without the fault. wrong: neither."""


@dataclass(slots=True)
class Tally:
    """Counts of the outcomes of each fault."""

    counts: dict[str, Counter[Outcome]] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)
    """A line for each wrong outcome: the fault, and how to reproduce it."""

    def add(self, fault: str, outcome: Outcome, message: str = "") -> None:
        """Count one fault. `message` says how an outcome is wrong and how to reproduce it."""
        self.counts.setdefault(fault, Counter())[outcome] += 1
        if outcome == "wrong":
            self.wrong.append(f"{fault}: {message}")

    @property
    def failed(self) -> bool:
        """Whether an outcome is wrong, or nothing was tried, which proves nothing."""
        return bool(self.wrong) or not self.counts


def print_table(tally: Tally, heading: str = "fault") -> None:
    """Print a row for each fault and one for all, then the wrong outcomes. `heading` is that of column 1."""
    print(f"| {heading} | injected | clean | identical | wrong |\n|---|---|---|---|---|")
    for fault, counts in [*tally.counts.items(), ("all", sum(tally.counts.values(), Counter[Outcome]()))]:
        row = (counts.total(), counts["clean"], counts["identical"], counts["wrong"])
        print(f"| {fault} | {' | '.join(f'{count:,}' for count in row)} |")
    for line in tally.wrong:
        print(f"\nwrong: {line}")
    if not tally.counts:
        print("\nwrong: nothing was tried")
