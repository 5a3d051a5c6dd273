"""Counts of lines for reports, with the lowest line numbers."""

from bisect import insort
from dataclasses import dataclass, field

SHOWN = 5


@dataclass(slots=True)
class Noted:
    """A count of lines, and the `SHOWN` lowest line numbers. Lines may be added in any order."""

    count: int = 0
    first: list[int] = field(default_factory=list)

    def add(self, number: int) -> None:
        """Count the line `number`. Keep `number` if it is among the `SHOWN` lowest."""
        self.count += 1
        if len(self.first) < SHOWN or number < self.first[-1]:
            insort(self.first, number)
            del self.first[SHOWN:]

    def __str__(self) -> str:
        """Return for example "line 17" or "lines 17, 40, 512 and 3 more"."""
        numbers = ", ".join(f"{number:,}" for number in self.first)
        more = f" and {self.count - SHOWN:,} more" if self.count > SHOWN else ""
        return f"line{'s' if self.count > 1 else ''} {numbers}{more}"
