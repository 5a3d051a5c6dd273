"""How parsing went: records a run, prints its table, and keeps it in the README.

Run `python recipes/parsing/results.py --help`.
"""

import argparse
import json
import sys
import tomllib
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

# Lets the script run from any folder: recipes are no part of the installed package.
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from recipes.multi30k.results import last_line, merged, write_table

HERE = Path(__file__).resolve().parent
KEPT = HERE / "results.jsonl"
SCORES = ("bracket F1", "precision", "recall", "complete match", "malformed")
COLUMNS = ("settings", "parses", *SCORES, "updates", "seed", "hours", "device", "date")

Result = Mapping[str, Any]


def record(run: Path, settings: str, model: Path) -> Result:
    """Write and return result.json of a run: what was trained, how it did, and on what."""
    training = run / "training"
    baseline, parses = (_scores(system) for system in _systems(run / "test.json"))
    averaged = json.loads((model / "config.json").read_bytes())["averaged"]
    config = tomllib.loads((training / "config.toml").read_text(encoding="utf-8"))
    environment = last_line(training / "environment.jsonl")
    result = {
        "settings": settings,
        "seed": config["training"]["seed"],
        "updates": last_line(training / "log.jsonl")["step"],
        "averaged": [part["step"] for part in averaged],
        "valid": {Path(system["system"]).stem: _scores(system) for system in _systems(run / "valid.json")},
        "test": parses,
        "right-branching": baseline,
        "signature": _systems(run / "test.json")[0]["scores"][0]["signature"],
        "hours": json.loads((training / "last" / "state.json").read_bytes())["seconds"] / 3600,
        **{name: environment[name] for name in ("device", "devices", "threads", "torch")},
        "date": datetime.now(UTC).date().isoformat(),
        "config": config,
    }
    (run / "result.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return result


def keep(runs: Iterable[Path]) -> list[Result]:
    """Put the results of these runs among those that are kept, in the place of older ones; returns all."""
    return merged(KEPT, read(runs), lambda result: (result["settings"], result["seed"]))


def read(runs: Iterable[Path]) -> list[Result]:
    """The results of these runs."""
    return [json.loads((run / "result.json").read_bytes()) for run in runs]


def table(results: Iterable[Result]) -> str:
    """Two rows for each run: right-branching trees, and what the model made."""
    rows = [COLUMNS, ("---",) * len(COLUMNS)]
    for result in results:
        scores = [[f"{result[name][score]:.2f}" for score in SCORES] for name in ("right-branching", "test")]
        count = len(result["averaged"])
        model = f"the model, average of {count}" if count > 1 else "the model, last checkpoint"
        trained = (f"{result['updates']:,}", str(result["seed"]), f"{result['hours']:.2f}")
        where = f"{result['devices']} x {result['device']}"
        rows.append((result["settings"], "right-branching", *scores[0], *("",) * 4, result["date"]))
        rows.append((result["settings"], model, *scores[1], *trained, where, result["date"]))
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def _systems(path: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(path.read_bytes())["systems"]
    return found


def _scores(system: Mapping[str, Any]) -> dict[str, float]:
    return {score["name"]: score["score"] for score in system["scores"]}


def main() -> None:
    """Read the options and do what they say."""
    parser = argparse.ArgumentParser(description="Record, show and keep the scores of parsers.")
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser("record", help="write result.json of a run, such as run/gum-1")
    command.add_argument("run", type=Path)
    command.add_argument("--settings", required=True)
    command.add_argument("--model", type=Path, required=True)
    command = commands.add_parser("show", help="print the table of these runs")
    command.add_argument("runs", type=Path, nargs="+")
    command = commands.add_parser(
        "keep", help="add these runs to results.jsonl, and write the README's table"
    )
    command.add_argument("runs", type=Path, nargs="+")
    options = parser.parse_args()
    match options.command:
        case "record":
            record(options.run, options.settings, options.model)
        case "show":
            print(table(read(options.runs)), end="")
        case "keep":
            write_table(HERE / "README.md", table(keep(options.runs)))


if __name__ == "__main__":
    main()
