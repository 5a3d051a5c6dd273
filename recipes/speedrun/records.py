"""Write the table of the speed record, from the results of recipes/multi30k.

Run `python recipes/speedrun/records.py --help`.
"""

import argparse
import re
import statistics
import sys
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

# Lets the script run from any folder: the recipes are not part of the installed package.
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from recipes.results import Result, markdown, mean_of_seeds, stored, where

HERE = Path(__file__).resolve().parent
ENTRIES: Mapping[str, Any] = tomllib.loads((HERE / "entries.toml").read_text(encoding="utf-8"))
GOAL = 41.0
"""BLEU on test2016 that the mean of the seeds must reach."""

COLUMNS = ("entry", "what", "updates", "seeds", "BLEU test2016", "core-minutes", "record", "commit", "logs")


def core_minutes(result: Result) -> float:
    """Return the time of training times the number of threads."""
    return float(result["hours"]) * 60 * int(result["threads"]) * int(result["devices"])


def runs(entry: Mapping[str, Any], results: Sequence[Result]) -> list[Result]:
    """Return the results of an entry's seeds that exist."""
    key = entry["settings"], "de", entry["updates"]
    own = [one for one in results if (one["settings"], one["language"], one["updates"]) == key]
    return [one for one in own if one["seed"] in entry["seeds"]]


def table(results: Sequence[Result], folder: Path = HERE) -> str:
    """Return the table of all entries. An entry counts once all of its seeds are there. It is a record if its
    mean reaches the goal in less time than every earlier entry that counts."""
    rows, fastest = [], float("inf")
    for name, entry in ENTRIES.items():
        own = runs(entry, results)
        bleu, minutes = (
            mean_of_seeds([one["tests"]["test_2016_flickr"] for one in own]),
            mean_of_seeds(map(core_minutes, own)),
        )
        missing = [str(seed) for seed in entry["seeds"] if seed not in {one["seed"] for one in own}]
        verdict = f"seeds {', '.join(missing)} are missing" if missing else "misses the goal"
        if not missing and statistics.mean(one["tests"]["test_2016_flickr"] for one in own) >= GOAL:
            time = statistics.mean(map(core_minutes, own))
            verdict, fastest = ("yes", time) if time < fastest else ("no, slower", fastest)
        devices = sorted({where(one) for one in own})
        logs = [f"[{seed}](logs/{name}-{seed}.jsonl)" for seed in entry["seeds"]]
        kept = [link for link in logs if (folder / re.findall(r"\((.*)\)", link)[0]).exists()]
        rows.append(
            (
                *(name, entry["what"], f"{entry['updates']:,}", ", ".join(str(one["seed"]) for one in own)),
                *(bleu, f"{minutes} ({'; '.join(devices)})" if own else "", verdict),
                *(entry["commit"], ", ".join(kept) or "not kept"),
            )
        )
    return markdown(COLUMNS, rows)


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description="The speed record on Multi30k.")
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser("entry", help="print settings, updates and seeds of an entry")
    command.add_argument("name", choices=ENTRIES)
    commands.add_parser("table", help="write the table into README.md")
    options = parser.parse_args()
    if options.command == "entry":
        entry = ENTRIES[options.name]
        print(entry["settings"], entry["updates"], *entry["seeds"])
        return
    readme = HERE / "README.md"
    rows = table(stored(HERE.parent / "multi30k"))
    between = re.compile("(<!-- written by records.py -->\n).*?(<!-- end -->)", re.DOTALL)
    text = between.sub(lambda found: f"{found[1]}{rows}{found[2]}", readme.read_text(encoding="utf-8"))
    readme.write_text(text, encoding="utf-8")
    print(rows, end="")


if __name__ == "__main__":
    main()
