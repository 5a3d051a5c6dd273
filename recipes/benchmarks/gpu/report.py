"""Compare predictions and goals with measurements on a GPU.

python -m recipes.benchmarks.gpu.report FOLDER     reads its JSON files, and writes report.md beside them
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

Measured = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Row:
    """A number of one file."""

    what: str
    file: str
    key: str
    predicted: str
    """From counts of bytes, launches and instructions, on an H200."""

    goal: float
    larger_is_better: bool = False

    def line(self, value: float) -> str:
        """Return the row of the table for `value`."""
        met = value >= self.goal if self.larger_is_better else value <= self.goal
        sign = ">=" if self.larger_is_better else "<="
        verdict = "met" if met else "missed"
        return f"| {self.what} | {self.predicted} | {value:,} | {sign} {self.goal:,} | {verdict} |"


ROWS = (
    Row("base, compiled: ms a step", "base-compiled", "ms_a_step", "25 to 27", 25),
    Row("base, eager: ms a step", "base-eager", "ms_a_step", "30", 35),
    Row("base, compiled: host ms a step", "base-compiled", "host_ms_a_step", "6 to 9", 15),
    Row("base, an eighth of the tokens: ms a step", "base-eighth", "ms_a_step", "6 to 9 (the host)", 6),
    Row(
        "big, compiled: target tokens/s",
        "big-compiled",
        "target_tokens_per_second",
        "368,000 to 397,000",
        330_000,
        True,
    ),
    Row("big, compiled: share of 798 TFLOP/s", "big-compiled", "798", "0.58 to 0.62", 0.5, True),
)
"""For steps with 25,000 tokens per side."""


@click.command()
@click.argument("folder", type=click.Path(path_type=Path, exists=True, file_okay=False))
def main(folder: Path) -> None:
    """Print the report, and write it to FOLDER."""
    text = "\n".join(
        report({path.stem: json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))})
    )
    print(text)
    (folder / "report.md").write_text(f"{text}\n")


def report(measured: Mapping[str, Measured]) -> Iterator[str]:
    """Yield lines of Markdown for the measurements by file name."""
    yield "| what | predicted | measured | goal | verdict |"
    yield "|---|---|---|---|---|"
    for row in ROWS:
        numbers = measured.get(row.file)
        if numbers is None:
            yield f"| {row.what} | {row.predicted} | not measured | | |"
        else:
            yield row.line(float({**numbers, **numbers["share_of_peak"]}[row.key]))
    if check := measured.get("check"):
        yield ""
        right = "yes" if check["right"] else "NO"
        yield f"Kernels and compiled code give what plain code gives: {right} (off by {check['off_by']})."
    if ceilings := measured.get("ceilings"):
        yield ""
        yield f"The device copies {ceilings['copy_GBps']:,} GB/s; a launch takes {ceilings['launch_us']} us."
        yield "TFLOP/s of its products of matrices:"
        yield from (f"- {name}: {rate}" for name, rate in ceilings["TFLOPs"].items())
    searches = [measured[name] for name in ("search-nmt", "search-ctranslate2") if name in measured]
    if searches:
        yield ""
        yield "| search | text | sentences/s | tokens/s |"
        yield "|---|---|---|---|"
    for search in searches:
        for run in search["runs"]:
            speed = f"{run['sentences_per_second']:,} | {run['tokens_per_second']:,}"
            yield f"| {search['kind']}, {run['how']} | {run['text']} | {speed} |"


if __name__ == "__main__":
    main()
