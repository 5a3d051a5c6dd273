"""Record the scores with and without back-translation, and show them as a table.

Run `python recipes/back-translation/results.py --help`.
"""

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

# Lets the script run from any folder: the recipes are not part of the installed package.
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from recipes.results import Result, averaged, keep, markdown, origin, read, save, systems, trained, where

HERE = Path(__file__).resolve().parent
SYSTEMS = ("without", "with")
COLUMNS = ("synthetic pairs", "pairs", "updates", "seed", "BLEU test2016", "p", "hours", "device", "date")


def record(out: Path) -> Result:
    """Return the data, settings and scores of a run in the folder `out`. Also write them to result.json."""
    scored = systems(out / "scores.json")
    result = {
        "back": _trained(out / "back"),
        **{name: _system(out / name, system) for name, system in zip(SYSTEMS, scored, strict=True)},
        "signature": scored[0]["scores"][0]["signature"],
    }
    save(result, out / "result.json")
    return result


def table(results: Sequence[Result]) -> str:
    """Return a table with one row for each of the two systems of a run."""
    return markdown(COLUMNS, [_row(name, result[name]) for result in results for name in SYSTEMS])


def score(results: Sequence[Result]) -> str:
    """Return the BLEU scores of both systems of the last result, with their origin."""
    last = results[-1]
    scores = ", ".join(f"{last[name]['bleu']:.2f} {name}" for name in SYSTEMS)
    return f"{scores} ({origin(last['back'], *(last[name] for name in SYSTEMS))})"


def _row(name: str, system: Result) -> tuple[str, ...]:
    """Return the table cells of one system."""
    p = "" if system["p_value"] is None else f"{system['p_value']:.3f}"
    numbers = (f"{system['pairs']:,}", f"{system['updates']:,}", str(system["seed"]))
    return (
        name,
        *numbers,
        f"{system['bleu']:.2f}",
        p,
        f"{system['hours']:.2f}",
        where(system),
        system["date"],
    )


def _system(folder: Path, system: Mapping[str, Any]) -> dict[str, Any]:
    """Return the training run in `folder`, and the scores in `system`, the system's entry."""
    bleu = system["scores"][0]
    return {
        **_trained(folder),
        **{"averaged": averaged(folder / "model"), "bleu": bleu["score"]},
        "p_value": bleu["significance"]["p_value"],
    }


def _trained(folder: Path) -> dict[str, Any]:
    """Return `results.trained` of the run in `folder`, and its number of training pairs."""
    dataset = json.loads((folder / "dataset" / "dataset.json").read_bytes())
    return {"pairs": dataset["splits"]["train"]["pairs"], **trained(folder / "training")}


def _key(result: Result) -> tuple[Any, ...]:
    """Return the updates and the seed, by which results are sorted."""
    return result["with"]["updates"], result["with"]["seed"]


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description="Record, show and store the effect of back-translation.")
    parser.add_argument("command", choices=("record", "keep"))
    parser.add_argument("out", type=Path, help="the folder of the run")
    options = parser.parse_args()
    if options.command == "record":
        print(table([record(options.out)]), end="")
    else:
        keep(HERE, read([options.out / "result.json"]), _key, table, score)


if __name__ == "__main__":
    main()
