"""Record the quality, size and speed of teachers and students, and show them as tables.

Run `python recipes/distillation/results.py --help`.
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
KEY = ("student", "languages", "updates", "seed")
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
    """Return a table for each result, with one row per system, between a line with what they share
    and one with the distance of the student from its teacher."""
    return "\n".join(f"{_heading(result)}\n\n{_systems(result)}{_distance(result)}" for result in results)


def score(results: Sequence[Result]) -> str:
    """Return the scores of the last result on its first test set, the speed-up of its student, and their
    origin."""
    last = results[-1]
    scores = [
        f"{next(iter(last['systems'][name]['bleu'].values())):.2f} {NAMES[name]}"
        for name in ("teacher", "greedy", "alone")
        if name in last["systems"]
    ]
    return f"{'; '.join(scores)}{_speed_up(last['systems'])} ({origin(last)})"


def _speed_up(rows: Mapping[str, Any]) -> str:
    """Return how many times as fast as the teacher the fastest student is, or "" without a teacher."""
    if "teacher" not in rows:
        return ""
    ratio = rows["greedy"]["lines_per_second"] / rows["teacher"]["lines_per_second"]
    return f". {ratio:.1f} x the teacher's sentences per second"


def _heading(result: Result) -> str:
    """Return the data and the training of a result in one line."""
    pairs = " and ".join(f"{count:,} {name}" for name, count in result["pairs"].items())
    return (
        f"`{result['student']}`, {result['languages']}, seed {result['seed']}, {result['updates']:,} updates "
        f"on {pairs} pairs, {result['hours']:.2f} h of {where(result)}, {result['date']}:"
    )


def _distance(result: Result) -> str:
    """Return a line with the loss and the speed-up of the student in int8, or "" without a teacher."""
    rows = result["systems"]
    if "teacher" not in rows:
        return ""
    teacher, student = rows["teacher"], rows["int8"]
    losses = (
        f"{teacher['bleu'][test] - bleu:.2f} ({test.partition('.')[0]})"
        for test, bleu in student["bleu"].items()
    )
    ratio = student["lines_per_second"] / teacher["lines_per_second"]
    return (
        f"\nIn int8, the student is {ratio:.1f} times as fast as its teacher and loses so much BLEU: "
        f"{', '.join(losses)}.\n"
    )


def _systems(result: Result) -> str:
    """Return the table of the systems of a result."""
    rows = result["systems"]
    tests = list(rows["student"]["bleu"])
    scores = (f"BLEU {test.partition('.')[0]}" for test in tests)
    columns = ("system", "beam", *scores, "MB", "sentences/s", "start-up, s")
    return markdown(columns, [_row(name, rows[name], tests) for name in NAMES if name in rows])


def _row(name: str, system: Mapping[str, Any], tests: Sequence[str]) -> tuple[str, ...]:
    """Return the table cells of one system."""
    models = f" ({system['models']} models)" if system["models"] > 1 else ""
    cells = []
    for test in tests:
        p = system["p"][test]
        cells.append(f"{system['bleu'][test]:.2f}" + ("" if p is None else f" (p {p:.3f})"))
    return (
        *(f"{NAMES[name]}{models}", str(system["beam"]), *cells),
        *(f"{system['bytes'] / 1e6:.1f}", f"{system['lines_per_second']:,.0f}", f"{system['start_up']:.2f}"),
    )


def _by_folder(scores: Path) -> dict[str, Any]:
    """Return the first score of each system in the output of `nmt score --json`, by the system's folder."""
    return {Path(system["system"]).parent.name: system["scores"][0] for system in systems(scores)}


def _key(result: Result) -> tuple[Any, ...]:
    """Return the student, languages, updates, seed and number of teachers, by which results are sorted."""
    teacher = result["systems"].get("teacher", {"models": 0})
    return (*(result[name] for name in KEY), teacher["models"])


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
