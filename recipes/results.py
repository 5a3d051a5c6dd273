"""Describe, save and show the results of recipes. The `results.py` of each recipe uses these functions.

`python recipes/results.py SCORES` prints the best system in the output of `nmt score --json`.
"""

import json
import re
import statistics
import sys
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

Result = Mapping[str, Any]


def trained(training: Path) -> dict[str, Any]:
    """Return the seed, updates, hours, hardware and settings of a run of `nmt train`, with today's date."""
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
    """Return `trained` of the run `training` beside the folder `stage`. The name of `stage` is a number of
    updates. Exit if the run has another number of updates."""
    result = trained(stage.parent / "training")
    if str(result["updates"]) != stage.name:
        sys.exit(
            f"Error: {stage.parent / 'training'} has {result['updates']} updates, "
            f"so it cannot be scored as {stage.name}."
        )
    return result


def averaged(model: Path) -> list[int]:
    """Return the steps of the checkpoints that `nmt average-checkpoints` has averaged into a model."""
    return [part["step"] for part in json.loads((model / "config.json").read_bytes())["averaged"]]


def systems(scores: Path) -> list[dict[str, Any]]:
    """Return the systems and their scores from the output of `nmt score --json`."""
    result: list[dict[str, Any]] = json.loads(scores.read_bytes())["systems"]
    return result


def best(scores: Path) -> str:
    """Return the name of the system with the highest first score, or of the first such system in a tie."""
    return str(max(systems(scores), key=lambda system: float(system["scores"][0]["score"]))["system"])


def save(result: Result, path: Path) -> None:
    """Write a result as JSON to `path`."""
    path.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


def read(paths: Iterable[Path]) -> list[Result]:
    """Return the results in those of `paths` that exist. Exit if no path exists."""
    results = [json.loads(path.read_bytes()) for path in paths if path.exists()]
    return results or sys.exit("Error: no result.json was found. Name the folder of a finished run.")


def keep(
    recipe: Path,
    new: Iterable[Result],
    key: Callable[[Result], tuple[Any, ...]],
    table: Callable[[Sequence[Result]], str],
    score: Callable[[Sequence[Result]], str],
) -> None:
    """Merge new results into `results.jsonl` of the folder `recipe`, sorted by `key`. A new result replaces
    an old result with the same key. Then write `table` of all results into the README of the recipe, and
    `score` of all results into the README of all recipes. Without results, write that there are none."""
    results = {key(result): result for result in (*stored(recipe), *new)}
    merged = [results[name] for name in sorted(results)]
    lines = "".join(json.dumps(result) + "\n" for result in merged)
    (recipe / "results.jsonl").write_text(lines, encoding="utf-8")
    rows = table(merged) if merged else "Not run yet.\n"
    _write_between(recipe / "README.md", "<!-- written by results.py -->\n", rows)
    summary = score(merged) if merged else "not yet run"
    _write_between(recipe.parent / "README.md", f"<!-- {recipe.name} -->", summary)


def stored(recipe: Path) -> list[Result]:
    """Return the results in `results.jsonl` of the folder `recipe`, or an empty list without that file."""
    path = recipe / "results.jsonl"
    return [*map(json.loads, path.read_text(encoding="utf-8").splitlines())] if path.exists() else []


def where(result: Result) -> str:
    """Return the number and kind of devices of a training run, such as "8 x NVIDIA H100"."""
    return f"{result['devices']} x {result['device']}"


def origin(*results: Result) -> str:
    """Return the seeds, hours, devices and newest date of training runs."""
    seeds = sorted({str(result["seed"]) for result in results})
    label = f"{'seeds' if seeds[1:] else 'seed'} {', '.join(seeds)}"
    hours = sum(result["hours"] for result in results)
    devices = " and ".join(sorted({*map(where, results)}))
    return f"{label}; {hours:.1f} h of {devices}; {max(result['date'] for result in results)}"


def mean_of_seeds(values: Iterable[float]) -> str:
    """Return the mean of values, with their standard deviation if there are several, or "" without values."""
    numbers = [*values]
    if not numbers:
        return ""
    spread = f" ± {statistics.stdev(numbers):.2f}" if numbers[1:] else ""
    return f"{statistics.mean(numbers):.2f}{spread}"


def markdown(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table with these column headings and rows of cells."""
    return "".join(f"| {' | '.join(row)} |\n" for row in (columns, ("---",) * len(columns), *rows))


def _write_between(readme: Path, begin: str, content: str) -> None:
    """Replace the text after the comment `begin`, up to the comment `end`, in a README."""
    text = readme.read_text(encoding="utf-8")
    marked = re.compile(f"{re.escape(begin)}.*?<!-- end -->", re.DOTALL)
    readme.write_text(marked.sub(lambda _: f"{begin}{content}<!-- end -->", text), encoding="utf-8")


def _last_line(path: Path) -> Mapping[str, Any]:
    """Return the JSON object on the last line of a file."""
    line: Mapping[str, Any] = json.loads(path.read_text(encoding="utf-8").splitlines()[-1])
    return line


if __name__ == "__main__":
    print(best(Path(sys.argv[1])))
