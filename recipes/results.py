"""What came of recipes: how each `results.py` describes a training, and keeps and shows results.

`python recipes/results.py SCORES` prints which system of `nmt score --json` is best.
"""

import json
import re
import sys
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

Result = Mapping[str, Any]


def trained(training: Path) -> dict[str, Any]:
    """How a run of `nmt train` went, and on what."""
    config = tomllib.loads((training / "config.toml").read_text(encoding="utf-8"))
    environment = _last_line(training / "environment.jsonl")
    return {
        "seed": config["training"]["seed"],
        "updates": _last_line(training / "log.jsonl")["step"],
        "hours": json.loads((training / "last" / "state.json").read_bytes())["seconds"] / 3600,
        **{name: environment[name] for name in ("device", "devices", "threads", "torch")},
        "date": datetime.now(UTC).date().isoformat(),
        "config": config,
    }


def trained_until(stage: Path) -> dict[str, Any]:
    """The same of the training beside a stage, which must stand at the updates that are its name."""
    result = trained(stage.parent / "training")
    if str(result["updates"]) != stage.name:
        sys.exit(
            f"Error: {stage.parent / 'training'} stands at {result['updates']} updates, "
            f"so it can't be scored as {stage.name}."
        )
    return result


def averaged(model: Path) -> list[int]:
    """The steps that `nmt average-checkpoints` has put into a model."""
    return [part["step"] for part in json.loads((model / "config.json").read_bytes())["averaged"]]


def systems(scores: Path) -> list[dict[str, Any]]:
    """The systems in what `nmt score --json` has printed, each with its scores."""
    found: list[dict[str, Any]] = json.loads(scores.read_bytes())["systems"]
    return found


def best(scores: Path) -> str:
    """The name of the system whose first score is highest; of equals, the first."""
    return str(max(systems(scores), key=lambda system: float(system["scores"][0]["score"]))["system"])


def save(result: Result, path: Path) -> None:
    """Write one result."""
    path.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


def read(paths: Iterable[Path]) -> list[Result]:
    """Results that were written; there must be some."""
    found = [json.loads(path.read_bytes()) for path in paths if path.exists()]
    return found or sys.exit(
        "Error: there is no result.json; name the folder of a run that has come to its end."
    )


def keep(
    recipe: Path,
    new: Iterable[Result],
    key: Callable[[Result], tuple[Any, ...]],
    table: Callable[[Sequence[Result]], str],
    score: Callable[[Sequence[Result]], str],
) -> None:
    """Put new results into a recipe's `results.jsonl`, in the place of older ones of the same key.

    Of all that are there then, the recipe's README gets the table, and that of all recipes the score.
    """
    results = {key(result): result for result in (*kept(recipe), *new)}
    everything = [results[name] for name in sorted(results)]
    lines = "".join(json.dumps(result) + "\n" for result in everything)
    (recipe / "results.jsonl").write_text(lines, encoding="utf-8")
    rows = table(everything) if everything else "Nothing was run yet.\n"
    _write_between(recipe / "README.md", "<!-- written by results.py -->\n", rows)
    told = score(everything) if everything else "not yet run"
    _write_between(recipe.parent / "README.md", f"<!-- {recipe.name} -->", told)


def kept(recipe: Path) -> list[Result]:
    """The results that a recipe keeps."""
    path = recipe / "results.jsonl"
    return [*map(json.loads, path.read_text(encoding="utf-8").splitlines())] if path.exists() else []


def where(result: Result) -> str:
    """What a training ran on, for a table."""
    return f"{result['devices']} x {result['device']}"


def origin(signature: str, *results: Result) -> str:
    """Where a score comes from, for the table of all recipes: seeds, what they took, the signature."""
    seeds = sorted({str(result["seed"]) for result in results})
    told = f"{'seeds' if seeds[1:] else 'seed'} {', '.join(seeds)}"
    hours = sum(result["hours"] for result in results)
    places = " and ".join(sorted({*map(where, results)}))
    counted = signature.replace("|", "\\|")  # which would end the cell
    return f"{told}; {hours:.1f} h in all of {places}; `{counted}`"


def markdown(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table."""
    return "".join(f"| {' | '.join(row)} |\n" for row in (columns, ("---",) * len(columns), *rows))


def _write_between(readme: Path, begin: str, content: str) -> None:
    text = readme.read_text(encoding="utf-8")
    marked = re.compile(f"{re.escape(begin)}.*?<!-- end -->", re.DOTALL)
    readme.write_text(marked.sub(lambda _: f"{begin}{content}<!-- end -->", text), encoding="utf-8")


def _last_line(path: Path) -> Mapping[str, Any]:
    found: Mapping[str, Any] = json.loads(path.read_text(encoding="utf-8").splitlines()[-1])
    return found


if __name__ == "__main__":
    print(best(Path(sys.argv[1])))
