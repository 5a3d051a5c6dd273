"""What came of runs on Multi30k: chooses, records, and writes the table of the README from what was recorded.

Run `python recipes/multi30k/results.py --help`.
"""

import argparse
import json
import re
import statistics
import sys
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
KEPT = HERE / "results.jsonl"
README = HERE / "README.md"
BEGIN, END = "<!-- written by results.py -->", "<!-- end -->"
KEY = ("settings", "language", "updates", "seed")
COLUMNS = (
    *("settings", "to", "updates", "seeds", "BLEU valid", "test2016", "test2017", "mscoco"),
    *("chosen on valid", "hours", "device", "date"),
)
SETS = ("test_2016_flickr", "test_2017_flickr", "test_2017_mscoco")

Result = Mapping[str, Any]


def best(scores: Path) -> str:
    """The name of the system that has most BLEU; of equals, the first."""
    systems = json.loads(scores.read_bytes())["systems"]
    return str(max(systems, key=lambda system: float(system["scores"][0]["score"]))["system"])


def record(stage: Path, settings: str, language: str, penalty: float) -> Result:
    """Write and return result.json of a stage: what was trained, how it did, and on what."""
    training = stage.parent / "training"
    updates = last_line(training / "log.jsonl")["step"]
    if str(updates) != stage.name:
        sys.exit(f"Error: {training} stands at {updates} updates, so it can't be scored as {stage.name}.")
    config = tomllib.loads((training / "config.toml").read_text(encoding="utf-8"))
    averaged = json.loads((stage / "model" / "config.json").read_bytes())["averaged"]
    environment = last_line(training / "environment.jsonl")
    state = json.loads((training / "last" / "state.json").read_bytes())
    result = {
        "settings": settings,
        "language": language,
        "updates": updates,
        "seed": config["training"]["seed"],
        "valid": max(_scores(stage / "valid.json")),
        "tests": {path.stem: max(_scores(path)) for path in sorted(stage.glob("test_*.json"))},
        "signature": _signature(stage / "valid.json"),
        "averaged": [part["step"] for part in averaged],
        "length_penalty": penalty,
        "hours": state["seconds"] / 3600,
        **{name: environment[name] for name in ("device", "devices", "threads", "torch")},
        "date": datetime.now(UTC).date().isoformat(),
        "config": config,
    }
    (stage / "result.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return result


def keep(runs: Iterable[Path]) -> list[Result]:
    """Put the results of these runs among those that are kept, in the place of older ones; returns all."""
    return merged(KEPT, [result for run in runs for result in recorded(run)], _key)


def merged(kept: Path, new: Iterable[Result], key: Callable[[Result], tuple[Any, ...]]) -> list[Result]:
    """Put new results among those of a file, in the place of older ones of the same key; returns all."""
    lines = kept.read_text(encoding="utf-8").splitlines() if kept.exists() else []
    results = {key(result): result for result in (*map(json.loads, lines), *new)}
    everything = [results[name] for name in sorted(results)]
    kept.write_text("".join(json.dumps(result) + "\n" for result in everything), encoding="utf-8")
    return everything


def recorded(run: Path) -> list[Result]:
    """The results of a run, the fewest updates first."""
    return sorted((json.loads(path.read_bytes()) for path in run.glob("*/result.json")), key=_key)


def table(results: Sequence[Result]) -> str:
    """A row for all seeds of the same thing, with mean and standard deviation where there are several."""
    groups: dict[tuple[object, ...], list[Result]] = {}
    for result in results:
        groups.setdefault(_key(result)[:-1], []).append(result)
    rows = [COLUMNS, ("---",) * len(COLUMNS), *map(_row, groups.values())]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows) if groups else "Nothing was run yet.\n"


def write_table(readme: Path, content: str) -> None:
    """Put `content` between the two marks of a README."""
    text = readme.read_text(encoding="utf-8")
    marked = re.compile(f"{re.escape(BEGIN)}\n.*{re.escape(END)}", re.DOTALL)
    readme.write_text(marked.sub(lambda _: f"{BEGIN}\n{content}{END}", text), encoding="utf-8")


def _row(group: Sequence[Result]) -> tuple[str, ...]:
    first = group[0]
    chosen = [f"{_model(result)}, penalty {result['length_penalty']:g}" for result in group]
    devices = [f"{result['devices']} x {result['device']}" for result in group]
    return (
        *(first["settings"], first["language"], f"{first['updates']:,}"),
        ", ".join(str(result["seed"]) for result in group),
        _mean([result["valid"] for result in group]),
        *(_mean([result["tests"][name] for result in group if name in result["tests"]]) for name in SETS),
        *("; ".join(dict.fromkeys(chosen)), _mean([result["hours"] for result in group])),
        *("; ".join(dict.fromkeys(devices)), max(result["date"] for result in group)),
    )


def _model(result: Result) -> str:
    steps = result["averaged"]
    return f"step {steps[0]}" if len(steps) == 1 else f"average of {len(steps)}"


def _mean(values: Sequence[float]) -> str:
    if not values:
        return ""
    spread = f" ± {statistics.stdev(values):.2f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.2f}{spread}"


def _key(result: Result) -> tuple[Any, ...]:
    return tuple(result[name] for name in KEY)


def _scores(path: Path) -> list[float]:
    return [system["scores"][0]["score"] for system in json.loads(path.read_bytes())["systems"]]


def _signature(path: Path) -> str:
    return str(json.loads(path.read_bytes())["systems"][0]["scores"][0]["signature"])


def last_line(path: Path) -> Mapping[str, Any]:
    found: Mapping[str, Any] = json.loads(path.read_text(encoding="utf-8").splitlines()[-1])
    return found


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Choose by, record and show the scores of runs on Multi30k.")
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser("best", help="print which system of nmt score --json has most BLEU")
    command.add_argument("scores", type=Path)
    command = commands.add_parser("record", help="write result.json of a stage, such as run/.../8000")
    command.add_argument("stage", type=Path)
    command.add_argument("--settings", required=True)
    command.add_argument("--language", required=True)
    command.add_argument("--penalty", type=float, required=True)
    command = commands.add_parser("show", help="print the table of these runs")
    command.add_argument("runs", type=Path, nargs="+")
    command = commands.add_parser(
        "keep", help="add these runs to results.jsonl, and write the README's table"
    )
    command.add_argument("runs", type=Path, nargs="*")
    return parser.parse_args()


def main() -> None:
    """Read the options and do what they say."""
    options = _options()
    match options.command:
        case "best":
            print(best(options.scores))
        case "record":
            record(options.stage, options.settings, options.language, options.penalty)
        case "show":
            print(table([result for run in options.runs for result in recorded(run)]), end="")
        case "keep":
            write_table(README, table(keep(options.runs)))


if __name__ == "__main__":
    main()
