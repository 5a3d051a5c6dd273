"""Record the results of runs on Multi30k, and show them as a table.

Run `python recipes/multi30k/results.py --help`.
"""

import argparse
import statistics
import sys
import tomllib
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

# Lets the script run from any folder: the recipes are not part of the installed package.
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from recipes.results import (
    Result,
    averaged,
    best,
    keep,
    markdown,
    mean_of_seeds,
    origin,
    read,
    save,
    systems,
    trained_until,
    where,
)

HERE = Path(__file__).resolve().parent
KEY = ("settings", "language", "updates", "seed")
COLUMNS = (
    *("settings", "to", "updates", "seeds", "BLEU valid", "test2016", "test2017", "mscoco"),
    *("chosen on valid", "hours", "device", "date"),
)
SETS = ("test_2016_flickr", "test_2017_flickr", "test_2017_mscoco")
KINDS = {"tok": "tokenised", "raw": "raw"}


def record(stage: Path, settings: str, language: str, beam: int, penalty: float) -> Result:
    """Return the settings, scores and hardware of a stage. Also write them to result.json. `beam` and
    `penalty` were best on the validation set. Write both to translate.toml."""
    run = trained_until(stage)
    result = {
        **{"settings": settings, "language": language},
        "valid": max(_scores(stage / "valid.json")),
        "tests": {path.stem: max(_scores(path)) for path in sorted(stage.glob("test_*.json"))},
        "signature": systems(stage / "valid.json")[0]["scores"][0]["signature"],
        **{"averaged": averaged(stage / "model"), "beam": beam, "length_penalty": penalty},
        **run,
    }
    save(result, stage / "result.json")
    search = f"[search]\nbeam = {beam}\nlength_penalty = {penalty:g}\n"
    (stage / "translate.toml").write_text(search, encoding="utf-8")
    return result


def stages(settings: Path) -> list[int]:
    """Return the numbers of updates after which to score, from a file of settings. With `max_steps`, return
    only `max_steps`, when the learning rate may be zero."""
    max_steps = tomllib.loads(settings.read_text(encoding="utf-8")).get("training", {}).get("max_steps")
    return [max_steps] if max_steps else [1000, 2000, 4000, 8000]


def recorded(run: Path) -> list[Result]:
    """Return the results of a run, sorted by updates. Exit if it has none."""
    return sorted(read(run.glob("*/result.json")), key=_key)


def table(results: Sequence[Result]) -> str:
    """Return a table with one row for all seeds of an experiment, with mean and standard deviation."""
    groups = groupby(results, lambda result: _key(result)[:-1])
    return markdown(COLUMNS, [_row(list(group)) for _, group in groups])


def score(results: Sequence[Result]) -> str:
    """Return the settings and the test2016 score of the model with the best validation score, by kind of text
    and language. The score is the mean of the model's seeds."""
    groups = [list(group) for _, group in groupby(results, lambda result: _key(result)[:-1])]
    groups.sort(key=lambda group: statistics.mean(result["valid"] for result in group))
    best_groups = {_name(group[0]): group for group in groups}
    return "<br>".join(
        f"`{group[0]['settings']}`: {mean_of_seeds([result['tests'][SETS[0]] for result in group])}, {name} "
        f"({origin(*group)})"
        for name, group in sorted(best_groups.items())
        if all(result["tests"] for result in group)
    )


def steps(folder: Path) -> str:
    """Return a table of the systems that steps.sh has scored. A p-value compares a system with the previous
    system."""
    rows = []
    for system in sorted(folder.iterdir(), key=lambda path: int(path.name)):
        tests = (_compared(system / f"{name}.json") for name in SETS)
        search = best(system / "valid.json").rpartition("valid-")[2].rpartition(".")[0]
        beam, _, penalty = search.partition("-")
        name = (system / "name.txt").read_text(encoding="utf-8").strip()
        rows.append(
            (name, f"beam {beam}, penalty {penalty}", f"{max(_scores(system / 'valid.json')):.2f}", *tests)
        )
    return markdown(("system", "search", "BLEU valid", "test2016", "test2017", "mscoco"), rows)


def _compared(path: Path) -> str:
    """Return the last BLEU score in a file of scores with its p-value, or "" if there is no file."""
    if not path.exists():
        return ""
    score = systems(path)[-1]["scores"][0]
    p = score.get("significance", {}).get("p_value")
    return f"{score['score']:.2f}" + ("" if p is None else f" (p {p:.3f})")


def _name(result: Result) -> str:
    """Return the kind of text and the languages of a result, such as "raw, en-de"."""
    return f"{KINDS[result['settings'].split('/')[0]]}, en-{result['language']}"


def _row(group: Sequence[Result]) -> tuple[str, ...]:
    """Return the cells for results that differ only in their seeds."""
    first = group[0]
    choices = [f"{_model(result)}, {_search(result)}" for result in group]
    return (
        *(first["settings"], first["language"], f"{first['updates']:,}"),
        ", ".join(str(result["seed"]) for result in group),
        mean_of_seeds([result["valid"] for result in group]),
        *(
            mean_of_seeds([result["tests"][name] for result in group if name in result["tests"]])
            for name in SETS
        ),
        *("; ".join(dict.fromkeys(choices)), mean_of_seeds([result["hours"] for result in group])),
        *("; ".join(dict.fromkeys(map(where, group))), max(result["date"] for result in group)),
    )


def _model(result: Result) -> str:
    """Return which checkpoints a result averages."""
    steps = result["averaged"]
    return f"step {steps[0]}" if len(steps) == 1 else f"average of {len(steps)}"


def _search(result: Result) -> str:
    """Return the beam size and length penalty of a result."""
    # Early results used only the published beam and do not record it.
    return f"beam {result.get('beam', 5)}, penalty {result['length_penalty']:g}"


def _key(result: Result) -> tuple[Any, ...]:
    """Return the settings, language, updates and seed, by which results are sorted."""
    return tuple(result[name] for name in KEY)


def _scores(path: Path) -> list[float]:
    """Return the BLEU score of each system in a file of scores."""
    return [system["scores"][0]["score"] for system in systems(path)]


def _options() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description="Record, show and store the scores of runs on Multi30k.")
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser("record", help="write result.json of a stage, such as run/.../8000")
    command.add_argument("stage", type=Path)
    command.add_argument("--settings", required=True)
    command.add_argument("--language", required=True)
    command.add_argument("--beam", type=int, required=True)
    command.add_argument("--penalty", type=float, required=True)
    command = commands.add_parser("stages", help="print the numbers of updates after which run.sh scores")
    command.add_argument("settings", type=Path)
    command = commands.add_parser("show", help="print the table of these runs")
    command.add_argument("runs", type=Path, nargs="+")
    command = commands.add_parser("steps", help="print the table of the systems that steps.sh has scored")
    command.add_argument("folder", type=Path)
    command = commands.add_parser("keep", help="add these runs to results.jsonl and the READMEs")
    command.add_argument("runs", type=Path, nargs="*")
    return parser.parse_args()


def main() -> None:
    """Run the command."""
    options = _options()
    if options.command == "record":
        record(options.stage, options.settings, options.language, options.beam, options.penalty)
        return
    if options.command == "stages":
        print(*stages(options.settings))
        return
    if options.command == "steps":
        print(steps(options.folder), end="")
        return
    results = sorted((result for run in options.runs for result in recorded(run)), key=_key)
    if options.command == "show":
        print(table(results), end="")
    else:
        keep(HERE, results, _key, table, score)


if __name__ == "__main__":
    main()
