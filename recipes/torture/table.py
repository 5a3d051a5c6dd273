"""What came of injected faults: counted by kind, and printed as a table for the README."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Literal, Self

Outcome = Literal["clean", "identical", "wrong"]
"""Refused in one line or told, the same result as without the fault, or neither."""


@dataclass(slots=True)
class Tally:
    """How often each fault was injected, and what came of it."""

    counts: dict[str, Counter[Outcome]] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)
    """A line for each wrong outcome: the fault, and all it takes to see it again."""

    def add(self, fault: str, outcome: Outcome, told: str = "") -> None:
        """Count one fault; `told` says of a wrong outcome what was seen, and how to see it again."""
        self.counts.setdefault(fault, Counter())[outcome] += 1
        if outcome == "wrong":
            self.wrong.append(f"{fault}: {told}")

    def sorted(self) -> Self:
        """By the names of the kinds, whichever came first."""
        self.counts = dict(sorted(self.counts.items()))
        return self


def print_table(tally: Tally, kinds: str = "fault") -> None:
    """Print a row for each of the `kinds` and the sum of all, and below the table what was wrong."""
    print(f"| {kinds} | injected | clean | identical | wrong |\n|---|---|---|---|---|")
    for kind, counts in [*tally.counts.items(), ("all", sum(tally.counts.values(), Counter[Outcome]()))]:
        row = (counts.total(), counts["clean"], counts["identical"], counts["wrong"])
        print(f"| {kind} | {' | '.join(f'{count:,}' for count in row)} |")
    for line in tally.wrong:
        print(f"\nwrong: {line}")
