"""Keep the results of the experiments of this folder, and write their tables into `README.md`.

An experiment is a module. Each of its runs has a name and a seed, and is a line of `results.jsonl`. A command
computes only runs without a line, so it resumes where it was stopped.
"""

import json
import re
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from nmt_cli.runtime.devices import processor_name
from recipes.results import markdown

HERE = Path(__file__).parent
Values = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Runs:
    """The runs of one experiment, from a file of lines."""

    experiment: str
    file: Path = HERE / "results.jsonl"
    lines: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Read the lines of the file."""
        if self.file.exists():
            self.lines.extend(map(json.loads, self.file.read_text(encoding="utf-8").splitlines()))

    def run(self, name: str, seed: int, compute: Callable[[], Values]) -> None:
        """Compute the values of a run and append its line, unless it is there."""
        if self.values(name, seed):
            return
        begin = time.perf_counter()
        values = compute()
        line = {"experiment": self.experiment, "name": name, "seed": seed, "values": values}
        line |= {"seconds": round(time.perf_counter() - begin), "device": processor_name()}
        line |= {"date": datetime.now(UTC).date().isoformat()}
        self.lines.append(line)
        with self.file.open("a", encoding="utf-8") as out:
            out.write(json.dumps(line) + "\n")
        print(json.dumps(line), flush=True)

    def values(self, name: str, seed: int | None = None) -> list[Values]:
        """Return the values of all runs with this name, or of the run with this seed."""
        own = [line for line in self.lines if (line["experiment"], line["name"]) == (self.experiment, name)]
        return [line["values"] for line in own if seed is None or line["seed"] == seed]

    def mean(self, name: str, value: str) -> float:
        """Return the mean of a value over all seeds."""
        return statistics.mean(values[value] for values in self.values(name))

    def cell(self, name: str, value: str, digits: int = 2) -> str:
        """Return the mean of a value and its range, if there are several seeds, or "" without runs."""
        numbers = [values[value] for values in self.values(name)]
        if not numbers:
            return ""
        spread = f" ({min(numbers):.{digits}f} to {max(numbers):.{digits}f})" if len(numbers) > 1 else ""
        return f"{statistics.mean(numbers):.{digits}f}{spread}"

    def origin(self) -> str:
        """Return the seeds, the time and the hardware of all runs, as one sentence."""
        own = [line for line in self.lines if line["experiment"] == self.experiment]
        seeds = sorted({line["seed"] for line in own})
        minutes = sum(line["seconds"] for line in own) / 60
        return (
            f"{len(own)} runs, seed{'s' if seeds[1:] else ''} {', '.join(map(str, seeds))}, "
            f"{minutes:.0f} minutes on {own[-1]['device']}, {max(line['date'] for line in own)}."
        )


def write_table(
    experiment: str, columns: Sequence[str], rows: Iterable[Sequence[str]], note: str, folder: Path = HERE
) -> None:
    """Replace the table of an experiment in the README of `folder`, and print it."""
    table = f"{markdown(columns, rows)}\n{note}\n"
    print(table)
    readme = folder / "README.md"
    marked = re.compile(f"(<!-- {experiment} -->\n).*?(<!-- end -->)", re.DOTALL)
    text = readme.read_text(encoding="utf-8")
    assert marked.search(text), f"{readme} has no place for the table of {experiment}"
    readme.write_text(marked.sub(lambda found: f"{found[1]}{table}{found[2]}", text), encoding="utf-8")
