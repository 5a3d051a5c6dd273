"""What back-translation brought: records a run, prints its table, and keeps it in the README.

Run `python recipes/back-translation/results.py --help`.
"""

import argparse
import json
import sys
import tomllib
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

# Lets the script run from any folder: recipes are no part of the installed package.
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from recipes.multi30k.results import last_line, write_table

HERE = Path(__file__).resolve().parent
SYSTEMS = ("without", "with")
COLUMNS = ("synthetic pairs", "pairs", "updates", "seed", "BLEU test2016", "p", "device", "date")


def record(out: Path) -> dict[str, Any]:
    """Write and return result.json of a run: what was trained on what, and how it did."""
    scores = json.loads((out / "scores.json").read_bytes())["systems"]
    environment = last_line(out / "with" / "training" / "environment.jsonl")
    result = {
        "systems": {name: _system(out / name, score) for name, score in zip(SYSTEMS, scores, strict=True)},
        "back": _trained(out / "back"),
        "signature": scores[0]["scores"][0]["signature"],
        **{name: environment[name] for name in ("device", "devices", "threads", "torch")},
        "date": datetime.now(UTC).date().isoformat(),
    }
    (out / "result.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return result


def table(result: Mapping[str, Any]) -> str:
    """A row for each of the two systems."""
    rows = [COLUMNS, ("---",) * len(COLUMNS)]
    for name, system in result["systems"].items():
        p = "" if system["p_value"] is None else f"{system['p_value']:.3f}"
        where = f"{result['devices']} x {result['device']}"
        numbers = (f"{system['pairs']:,}", f"{system['updates']:,}", str(system["seed"]))
        rows.append((name, *numbers, f"{system['bleu']:.2f}", p, where, result["date"]))
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def _system(folder: Path, scored: Mapping[str, Any]) -> dict[str, Any]:
    score = scored["scores"][0]
    averaged = json.loads((folder / "model" / "config.json").read_bytes())["averaged"]
    return {
        **_trained(folder),
        "averaged": [part["step"] for part in averaged],
        "bleu": score["score"],
        "p_value": score["significance"]["p_value"],
    }


def _trained(folder: Path) -> dict[str, Any]:
    config = tomllib.loads((folder / "training" / "config.toml").read_text(encoding="utf-8"))
    dataset = json.loads((folder / "dataset" / "dataset.json").read_bytes())
    return {
        "pairs": dataset["splits"]["train"]["pairs"],
        "updates": last_line(folder / "training" / "log.jsonl")["step"],
        "seed": config["training"]["seed"],
        "config": config,
    }


def main() -> None:
    """Read the options and do what they say."""
    parser = argparse.ArgumentParser(description="Record, show and keep what back-translation brought.")
    parser.add_argument("command", choices=("record", "keep"))
    parser.add_argument("out", type=Path, help="the folder of the run")
    options = parser.parse_args()
    if options.command == "record":
        print(table(record(options.out)), end="")
        return
    result = json.loads((options.out / "result.json").read_bytes())
    (HERE / "result.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    write_table(HERE / "README.md", table(result))


if __name__ == "__main__":
    main()
