"""Record the quality, size and speed of teachers and students, and show them as tables.

Run `python recipes/distillation/results.py --help`.
"""

import argparse
import json
import statistics
import sys
from collections.abc import Mapping, Sequence
from itertools import groupby
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
NAMES = {
    "teacher": "teacher",
    "alone": "student without a teacher",
    "student": "student",
    "int8": "student, int8",
    "greedy": "student, int8, greedy",
    "shortlist": "student, int8, greedy, shortlist",
    "engine": "student in Bergamot, int8, greedy, shortlist",
}
"""The systems in the order of a table, by the names of their folders."""


def record(out: Path, run: Path, student: str, languages: str) -> Result:
    """Return the data, settings, scores and speeds of the student in the folder `run`, and of the teacher in
    `out`. Also write them to result.json in `run`."""
    dataset = json.loads((out / "dataset" / "dataset.json").read_bytes())
    scored = {path.stem: _by_folder(path) for path in sorted(run.glob("test*.json"))}
    first = next(iter(scored.values()))
    folders = {name: out if name == "teacher" else run for name in NAMES if name in first}
    result = {
        **{"student": student, "languages": languages, **trained(run / "student" / "training")},
        "averaged": averaged(run / "student" / "model"),
        "hours_alone": trained(run / "alone" / "training")["hours"] if "alone" in first else None,
        "pairs": {corpus["name"]: corpus["pairs"] for corpus in dataset["splits"]["train"]["corpora"]},
        "systems": {
            name: {
                **json.loads((folder / name / "speed.json").read_bytes()),
                "bleu": {test: scores[name]["score"] for test, scores in scored.items()},
                "p": {
                    test: scores[name].get("significance", {}).get("p_value")
                    for test, scores in scored.items()
                },
            }
            for name, folder in folders.items()
        },
        "signature": first["student"]["signature"],
    }
    save(result, run / "result.json")
    return result


def table(results: Sequence[Result]) -> str:
    """Return a table with a row per system for each student, with the mean of its seeds. Before it is a line
    with what they share, after it one with the distance of the student from its teacher."""
    seeds = [[*group] for _, group in groupby(sorted(results, key=_key), _group)]
    return "\n".join(f"{_heading(one)}\n\n{_systems(one)}{_distance(one)}" for one in seeds)


def score(results: Sequence[Result]) -> str:
    """Return the scores of the newest student on its first test set, the speed-up of its greedy search, and
    their origin."""
    newest = _group(max(results, key=lambda one: str(one["date"])))
    seeds = [one for one in results if _group(one) == newest]
    test = next(iter(seeds[0]["systems"]["greedy"]["bleu"]))
    scores = [
        f"{_mean_bleu([one['systems'][name] for one in seeds], test)} {NAMES[name]}"
        for name in ("teacher", "greedy", "alone")
        if name in seeds[0]["systems"]
    ]
    speed_up = _speed_up(seeds, "greedy")
    faster = f". {speed_up:.1f} x the teacher's sentences per second" if speed_up else ""
    return f"{'; '.join(scores)}{faster} ({origin(*seeds)})"


def _speed_up(seeds: Sequence[Result], name: str) -> float:
    """Return how many times as fast as the teacher the system `name` is, or 0 without a teacher."""
    rows = [one["systems"] for one in seeds if "teacher" in one["systems"]]
    ratios = [row[name]["lines_per_second"] / row["teacher"]["lines_per_second"] for row in rows]
    return statistics.mean(ratios) if ratios else 0.0


def _mean_bleu(seeds: Sequence[Mapping[str, Any]], test: str) -> str:
    values = [one["bleu"][test] for one in seeds]
    # All seeds of a student have one teacher, whose BLEU has no spread.
    return mean_of_seeds(values if len({*values}) > 1 else values[:1])


def _heading(seeds: Sequence[Result]) -> str:
    """Return the data and the training of a student in one line."""
    last = seeds[-1]
    pairs = " and ".join(f"{count:,} {name}" for name, count in last["pairs"].items())
    numbers = ", ".join(str(one["seed"]) for one in seeds)
    return (
        f"`{last['student']}`, {last['languages']}, seed{'s' * (len(seeds) > 1)} {numbers}, "
        f"{last['updates']:,} updates on {pairs} pairs, {mean_of_seeds(one['hours'] for one in seeds)} h of "
        f"{where(last)}, {last['date']}:"
    )


def _distance(seeds: Sequence[Result]) -> str:
    """Return a line with the loss and the speed-up of the student in int8, or "" without a teacher."""
    if not (speed_up := _speed_up(seeds, "int8")):
        return ""
    rows = [one["systems"] for one in seeds]
    tests = rows[0]["teacher"]["bleu"]
    losses = (
        f"{mean_of_seeds(row['teacher']['bleu'][test] - row['int8']['bleu'][test] for row in rows)} "
        f"({test.partition('.')[0]})"
        for test in tests
    )
    return (
        f"\nIn int8, the student is {speed_up:.1f} times as fast as its teacher and loses so much BLEU: "
        f"{', '.join(losses)}.\n"
    )


def _systems(seeds: Sequence[Result]) -> str:
    """Return the table of the systems of a student."""
    last = seeds[-1]["systems"]
    tests = list(last["student"]["bleu"])
    scores = (f"BLEU {test.partition('.')[0]}" for test in tests)
    columns = ("system", "beam", *scores, "MB", "sentences/s", "start-up, s")
    # A system that not all seeds have, such as the engine where it was not installed, has no mean.
    shared = (name for name in NAMES if all(name in one["systems"] for one in seeds))
    return markdown(columns, [_row(name, [one["systems"][name] for one in seeds], tests) for name in shared])


def _row(name: str, seeds: Sequence[Mapping[str, Any]], tests: Sequence[str]) -> tuple[str, ...]:
    """Return the table cells of one system."""
    last = seeds[-1]
    models = f" ({last['models']} models)" if last["models"] > 1 else ""
    cells = []
    for test in tests:
        p = last["p"][test] if len(seeds) == 1 else None
        cells.append(_mean_bleu(seeds, test) + ("" if p is None else f" (p {p:.3f})"))
    speed, start_up = (
        statistics.mean(one[what] for one in seeds) for what in ("lines_per_second", "start_up")
    )
    return (
        *(f"{NAMES[name]}{models}", str(last["beam"]), *cells),
        *(f"{last['bytes'] / 1e6:.1f}", f"{speed:,.0f}", f"{start_up:.2f}"),
    )


def _by_folder(scores: Path) -> dict[str, Any]:
    """Return the first score of each system in the output of `nmt score --json`, by the system's folder."""
    return {Path(system["system"]).parent.name: system["scores"][0] for system in systems(scores)}


def _group(result: Result) -> tuple[Any, ...]:
    """Return what the seeds of a student share: its name, languages, updates and number of teachers."""
    teacher = result["systems"].get("teacher", {"models": 0})
    return result["student"], result["languages"], result["updates"], teacher["models"]


def _key(result: Result) -> tuple[Any, ...]:
    """Return the order of a result, with the seeds of a student side by side."""
    return *_group(result), result["seed"]


def _options() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description="Record, show and store the results of distillation.")
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser("record", help="write result.json of a student")
    command.add_argument("out", type=Path, help="the folder of the recipe")
    command.add_argument("run", type=Path, help="the folder of the student in it")
    command.add_argument("--student", required=True)
    command.add_argument("--languages", required=True)
    command = commands.add_parser("show", help="print the tables of these students")
    command.add_argument("runs", type=Path, nargs="+", help="folders of students")
    command = commands.add_parser("keep", help="add these students to results.jsonl and the READMEs")
    command.add_argument("runs", type=Path, nargs="*", help="folders of students")
    return parser.parse_args()


def main() -> None:
    """Run the command."""
    options = _options()
    if options.command == "record":
        record(options.out, options.run, options.student, options.languages)
        return
    new = read(run / "result.json" for run in options.runs) if options.runs else []
    if options.command == "show":
        print(table(new), end="")
    else:
        keep(HERE, new, _key, table, score)


if __name__ == "__main__":
    main()
