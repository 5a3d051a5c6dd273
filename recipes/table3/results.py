"""Print the settings of the rows of Table 3, and compare our results with the paper's numbers.

Run `python recipes/table3/results.py --help`.
"""

import argparse
import json
import math
import re
import statistics
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

# Lets the script run from any folder: the recipes are not part of the installed package.
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from nmt_cli.training.config import TrainConfig
from recipes.results import Result, keep, markdown, origin, read, save, stored, systems, trained_until, where

HERE = Path(__file__).resolve().parent
ROWS: Mapping[str, Any] = tomllib.loads((HERE / "rows.toml").read_text(encoding="utf-8"))
WIDTHS = {"model.width": 512, "model.feed_forward": 2048}
SCALED = ("model.width", "model.feed_forward", "model.key_width")
MEASURES = {"perplexity": "perplexity", "bleu": "BLEU"}
DECISIVE = ("model", "batch", "sampling", "loss", "optimizer", "schedule")
SIGNS = {"higher": 1, "lower": -1}
COLUMNS = (
    *("row", "seeds", "parameters", "from base", "at full width", "paper's"),
    *("perplexity", "paper's", "BLEU", "paper's"),
)
VERDICTS = ("the paper's finding", "measure", "expected", "difference", "95 % interval", "verdict")
COLOURS = {
    "confirmed": "#009e73",
    "contradicted": "#d55e00",
    "undecided": "#777777",
    "no difference detected": "#0072b2",
}
T_QUANTILES = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23, 2.20, 2.18, 2.16, 2.14, 2.13)
"""The 97.5 % quantiles of Student's t with 1, 2, ... degrees of freedom. More degrees use the last one."""


def settings(row: str, factor: int) -> dict[str, Any]:
    """Return the settings of a row that override the base preset. All widths are divided by `factor`.

    Exit if the row is unknown or `factor` does not divide a width.
    """
    if row not in ROWS:
        sys.exit(f"Error: {row} is not a row. The rows are {', '.join(ROWS)}.")
    options = WIDTHS | ROWS[row]["set"]
    if odd := [f"{name} {options[name]}" for name in SCALED if options.get(name, 0) % factor]:
        sys.exit(f"Error: {factor} does not divide {', '.join(odd)}.")
    return {name: value // factor if name in SCALED else value for name, value in options.items()}


def as_options(options: Mapping[str, Any]) -> str:
    """Return settings as `--set` options of a command."""
    return " ".join(
        f'--set {name}="{value}"' if isinstance(value, str) else f"--set {name}={value}"
        for name, value in options.items()
    )


def record(stage: Path, corpus: str, row: str, factor: int) -> Result:
    """Return the settings, scores and hardware of a stage of a row. Also write them to result.json."""
    run = trained_until(stage)
    lines = (stage.parent / "training" / "log.jsonl").read_text(encoding="utf-8").splitlines()
    perplexity = next(line for line in map(json.loads, reversed(lines)) if "perplexity" in line)["perplexity"]
    scored = systems(stage / "score.json")[0]["scores"][0]
    result = {
        **{"corpus": corpus, "factor": factor, "row": row},
        "parameters": parameters((stage / "plan.txt").read_text(encoding="utf-8")),
        **{"perplexity": perplexity, "bleu": scored["score"], "signature": scored["signature"]},
        **run,
    }
    save(result, stage / "result.json")
    return result


def parameters(plan: str) -> int:
    """Return the number of parameters from the output of `nmt train --dry-run`."""
    return int(re.findall(r"^parameters +([\d,]+)", plan, re.MULTILINE)[0].replace(",", ""))


def recorded(sweep: Path) -> list[Result]:
    """Return the results of a sweep in the order of the table. Exit if there is none."""
    return sorted(read(sweep.glob("*/*/result.json")), key=_key)


def table(results: Sequence[Result]) -> str:
    """Return the paper's table with our numbers and verdicts, for each corpus and size."""
    groups = groupby(results, lambda result: _key(result)[:3])
    parts = [_part(name, list(group)) for name, group in groups]
    return "\n".join(parts)


def score(results: Sequence[Result]) -> str:
    """Return the validation score of the base row and the cost of all rows, for each corpus."""
    parts = []
    for (corpus, factor, updates), group in groupby(results, lambda result: _key(result)[:3]):
        rows = list(group)
        if base := [result["bleu"] for result in rows if result["row"] == "base"]:
            size = f"base / {factor} after {updates:,} updates, valid, {corpus}"
            parts.append(f"{statistics.mean(base):.2f}, {size} (all rows: {origin(*rows)})")
    return "<br>".join(parts)


def _part(name: tuple[Any, ...], results: Sequence[Result]) -> str:
    """Return the tables of one corpus, factor and number of updates. Exit if results differ in settings that
    are not in `rows.toml`."""
    corpus, factor, updates = name
    if odd := _differing(results):
        sys.exit(
            f"Error: rows of {corpus} with {updates:,} updates were trained with different settings "
            f"({', '.join(odd)}), so they do not belong into one table."
        )
    rows = {row: [result for result in results if result["row"] == row] for row in ROWS}
    devices = sorted(set(map(where, results)))
    title = (
        f"{corpus}, widths divided by {factor}, {updates:,} updates a row; {'; '.join(devices)}, "
        f"{sum(result['hours'] for result in results):.1f} hours in all, {max(r['date'] for r in results)}:\n"
    )
    table = markdown(COLUMNS, [_row(row, group, rows["base"]) for row, group in rows.items() if group])
    missing = [ROWS[row]["what"] for row, group in rows.items() if not group]
    verdict_table = markdown(VERDICTS, [_cells(one) for one in verdicts(rows)])
    note = f"\nNot run: {'; '.join(missing)}.\n" if missing else ""
    picture = f"\n![Differences of perplexity from base, with intervals]({picture_name(name)})\n"
    return f"{title}\n{table}{note}\n{verdict_table}{picture}"


def _differing(results: Sequence[Result]) -> list[str]:
    """Return the settings outside of `rows.toml` that affect the weights and differ between results."""
    row_settings = {*SCALED, *(name for row in ROWS.values() for name in row["set"])}
    defaults = asdict(TrainConfig())  # for settings that are newer than a result
    flat = [
        {
            f"{section}.{key}": value
            for section in DECISIVE
            for key, value in {**defaults[section], **result["config"][section]}.items()
            if key in defaults[section]  # removed settings, such as embedding_dropout, followed others
        }
        for result in results
    ]
    return sorted(
        {
            name
            for values in flat
            for name in values
            if name not in row_settings and values[name] != flat[0][name]
        }
    )


def _row(row: str, group: Sequence[Result], base: Sequence[Result]) -> tuple[str, ...]:
    """Return the cells of a row from its results and those of the base row."""
    full = dict(line.split() for line in (HERE / "parameters.txt").read_text(encoding="utf-8").splitlines())
    wide = {name: int(number.replace(",", "")) / 1e6 for name, number in full.items()}
    paper, millions = ROWS[row]["paper"], ROWS["base"]["paper"]["millions"]
    count = group[0]["parameters"]
    return (
        *(ROWS[row]["what"], ", ".join(str(result["seed"]) for result in group), f"{count:,}"),
        f"{count - base[0]['parameters']:+,}" if base else "",
        f"{wide[row] - wide['base']:+.1f} M",
        f"{paper['millions'] - millions:+} M" if "millions" in paper else "",
        *(_mean([result["perplexity"] for result in group]), f"{paper['perplexity']:.2f}"),
        *(_mean([result["bleu"] for result in group]), f"{paper['bleu']:.1f}"),
    )


class Verdict(NamedTuple):
    """What a sweep says about a finding of the paper."""

    finding: str
    measure: str
    expected: str
    difference: float
    """Mean of the row minus mean of base."""

    detectable: float | None
    """Half of the 95 % interval of the difference, or None if no row has several seeds."""

    verdict: str


def _cells(one: Verdict) -> tuple[str, ...]:
    """Return the cells of a verdict. The interval is that of the difference."""
    interval = "unknown"
    if one.detectable is not None:
        interval = f"{one.difference - one.detectable:+.2f} to {one.difference + one.detectable:+.2f}"
    return one.finding, MEASURES[one.measure], one.expected, f"{one.difference:+.2f}", interval, one.verdict


def picture_name(name: tuple[Any, ...]) -> str:
    """Return the name of the picture of a sweep, from its corpus, factor and updates."""
    return f"table3-{'-'.join(map(str, name))}.svg"


def pictures(results: Sequence[Result]) -> dict[str, str]:
    """Return an SVG for each sweep, by its name: the differences of perplexity from base, with intervals."""
    drawn = {}
    for name, group in groupby(results, lambda result: _key(result)[:3]):
        own = list(group)
        rows = {row: [result for result in own if result["row"] == row] for row in ROWS}
        drawn[picture_name(name)] = picture([one for one in verdicts(rows) if one.measure == "perplexity"])
    return drawn


def picture(shown: Sequence[Verdict]) -> str:
    """Return an SVG with a line for each verdict: its interval, the difference as a point, and 0 as base."""
    left, wide, step = 430, 330, 22
    ends = [one.difference + sign * (one.detectable or 0) for one in shown for sign in (-1, 1)]
    low, high = min([0.0, *ends]), max([0.0, *ends])

    def x(value: float) -> str:
        return f"{left + wide * (value - low) / (high - low or 1):.1f}"

    tall = step * len(shown) + 60
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + wide + 40}" height="{tall}" ']
    parts.append('font-family="sans-serif" font-size="12"><rect width="100%" height="100%" fill="white"/>')
    parts.append(f'<path d="M{x(0)} 8V{tall - 42}" stroke="#333"/>')
    for value in (low, 0.0, high):
        parts.append(f'<text x="{x(value)}" y="{tall - 26}" text-anchor="middle">{value:+.2f}</text>')
    for row, one in enumerate(shown):
        y, half = 20 + step * row, one.detectable or 0
        colour = COLOURS[one.verdict]
        parts.append(f'<text x="{left - 16}" y="{y + 4}" text-anchor="end">{one.finding}</text>')
        parts.append(
            f'<path d="M{x(one.difference - half)} {y}H{x(one.difference + half)}" stroke="{colour}"/>'
        )
        parts.append(f'<circle cx="{x(one.difference)}" cy="{y}" r="4" fill="{colour}"/>')
    for number, (verdict, colour) in enumerate(COLOURS.items()):
        parts.append(f'<text x="{20 + 150 * number}" y="{tall - 8}" fill="{colour}">● {verdict}</text>')
    return "\n".join([*parts, "</svg>", ""])


def verdicts(rows: Mapping[str, Sequence[Result]]) -> Iterator[Verdict]:
    """Yield a verdict for each finding and measure of the rows that were run. A row differs from base if
    their means differ by more than `detectable`."""
    for row, group in rows.items():
        for measure, expected in ROWS[row].get("expect", {}).items():
            if group and rows["base"]:
                means = [statistics.mean(one[measure] for one in part) for part in (group, rows["base"])]
                difference, least = means[0] - means[1], detectable(rows, row, measure)
                finding, decided = (
                    f"{ROWS[row]['finding']} ({ROWS[row]['what']})",
                    verdict(expected, difference, least),
                )
                yield Verdict(finding, measure, expected, difference, least, decided)


def detectable(rows: Mapping[str, Sequence[Result]], row: str, measure: str) -> float | None:
    """Return the smallest difference between the means of a row and of base that a t-test detects (p < 0.05).
    Its variance is that of seeds, pooled over all rows. Return None if no row has several seeds."""
    groups = [[one[measure] for one in group] for group in rows.values() if len(group) > 1]
    freedom = sum(len(group) - 1 for group in groups)
    if not freedom:
        return None
    variance = sum(statistics.variance(group) * (len(group) - 1) for group in groups) / freedom
    error = math.sqrt(variance * (1 / len(rows[row]) + 1 / len(rows["base"])))
    return T_QUANTILES[min(freedom, len(T_QUANTILES)) - 1] * error


def verdict(expected: str, difference: float, least: float | None) -> str:
    """Return in words whether the difference confirms the expectation. `least` is the smallest difference
    that counts, or None if it is not known."""
    if least is None:
        return "undecided"
    if expected == "equal":
        return "no difference detected" if abs(difference) <= least else "contradicted"
    if abs(difference) <= least:
        return "undecided"
    return "confirmed" if difference * SIGNS[expected] > 0 else "contradicted"


def _mean(values: Sequence[float]) -> str:
    """Return the mean of values, and their range if there are several."""
    spread = f" ({min(values):.2f} to {max(values):.2f})" if len(values) > 1 else ""
    return f"{statistics.mean(values):.2f}{spread}"


def _key(result: Result) -> tuple[Any, ...]:
    """Return the corpus, factor, updates, row and seed, by which results are sorted."""
    position = list(ROWS).index(result["row"])
    return result["corpus"], result["factor"], result["updates"], position, result["seed"]


def _options() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description="Table 3 of Attention Is All You Need.")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("rows", help="print the names of all rows but big")
    command = commands.add_parser("settings", help="print the options of nmt train that make a row")
    command.add_argument("row")
    command.add_argument("--factor", type=int, required=True, help="divisor of all widths")
    command = commands.add_parser(
        "record", help="write result.json of a stage, such as run/multi30k-8/base-1/1500"
    )
    command.add_argument("stage", type=Path)
    command.add_argument("--corpus", required=True)
    command.add_argument("--row", required=True)
    command.add_argument("--factor", type=int, required=True)
    command = commands.add_parser("show", help="print the tables of a sweep, such as run/multi30k-8")
    command.add_argument("sweep", type=Path)
    command = commands.add_parser("keep", help="add sweeps to results.jsonl and the READMEs")
    command.add_argument("sweeps", type=Path, nargs="*")
    return parser.parse_args()


def main() -> None:
    """Run the command."""
    options = _options()
    match options.command:
        case "rows":
            print("\n".join(row for row in ROWS if row != "big"))
        case "settings":
            print(as_options(settings(options.row, options.factor)))
        case "record":
            record(options.stage, options.corpus, options.row, options.factor)
        case "show":
            print(table(recorded(options.sweep)), end="")
        case "keep":
            new = [result for sweep in options.sweeps for result in recorded(sweep)]
            keep(HERE, new, _key, table, score)
            for name, svg in pictures(stored(HERE)).items():
                (HERE / name).write_text(svg, encoding="utf-8")


if __name__ == "__main__":
    main()
