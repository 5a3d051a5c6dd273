"""Record the scores of a run, print them as a table, and keep them in the README.

Run `python recipes/parsing/results.py --help`.
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

# Lets the script run from any folder: the recipes are not part of the installed package.
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from recipes.results import (
    Result,
    averaged,
    keep,
    markdown,
    mean_of_seeds,
    origin,
    read,
    save,
    systems,
    trained,
    where,
)

HERE = Path(__file__).resolve().parent
SCORES = ("bracket F1", "precision", "recall", "complete match")
COLUMNS = ("settings", "parses", *SCORES, "updates", "seed", "hours", "device", "date")


def record(run: Path, settings: str, model: Path) -> Result:
    """Write and return result.json of a run: its data, settings and scores."""
    baseline, parses = (_scores(system) for system in systems(run / "test.json"))
    result = {
        **{"settings": settings, "averaged": averaged(model)},
        "valid": {Path(system["system"]).stem: _scores(system) for system in systems(run / "valid.json")},
        **{"test": parses, "right-branching": baseline},
        "signature": systems(run / "test.json")[0]["scores"][0]["signature"],
        **trained(run / "training"),
    }
    save(result, run / "result.json")
    return result


def table(results: Sequence[Result]) -> str:
    """Return a table with a row for each run, after one for the right-branching trees of its treebank."""
    rows: list[tuple[str, ...]] = []
    for result in results:
        scores = [[f"{result[name][score]:.2f}" for score in SCORES] for name in ("right-branching", "test")]
        count = len(result["averaged"])
        model = f"the model, average of {count}" if count > 1 else "the model, last checkpoint"
        how = (f"{result['updates']:,}", str(result["seed"]), f"{result['hours']:.2f}", where(result))
        if not any(row[:6] == (result["settings"], "right-branching", *scores[0]) for row in rows):
            rows.append((result["settings"], "right-branching", *scores[0], *("",) * 4, result["date"]))
        rows.append((result["settings"], model, *scores[1], *how, result["date"]))
    return markdown(COLUMNS, rows)


def score(results: Sequence[Result]) -> str:
    """Return the bracket F1 of each group of settings, as the mean of its seeds and their spread."""
    parts = []
    for name in sorted({result["settings"] for result in results}):
        group = [result for result in results if result["settings"] == name]
        values = mean_of_seeds(result["test"][SCORES[0]] for result in group)
        parts.append(f"F1 {values}, {name} ({origin(*group)})")
    return "<br>".join(parts)


def _key(result: Result) -> tuple[Any, ...]:
    return result["settings"], result["seed"]


def _scores(system: Mapping[str, Any]) -> dict[str, float]:
    return {score["name"]: score["score"] for score in system["scores"]}


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description="Record, show and keep the scores of parsers.")
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser("record", help="write result.json of a run, such as run/gum-1")
    command.add_argument("run", type=Path)
    command.add_argument("--settings", required=True)
    command.add_argument("--model", type=Path, required=True)
    command = commands.add_parser("show", help="print the table of these runs")
    command.add_argument("runs", type=Path, nargs="+")
    command = commands.add_parser("keep", help="add these runs to results.jsonl and the READMEs")
    command.add_argument("runs", type=Path, nargs="+")
    options = parser.parse_args()
    match options.command:
        case "record":
            record(options.run, options.settings, options.model)
        case "show":
            print(table(read(run / "result.json" for run in options.runs)), end="")
        case "keep":
            keep(HERE, read(run / "result.json" for run in options.runs), _key, table, score)


if __name__ == "__main__":
    main()
