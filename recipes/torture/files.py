"""Damage every file that `nmt` reads, one at a time, and check the outcome of the command.

python -m recipes.torture.files --outcomes outcomes.jsonl     10,000 mutations; run it again to resume
python -m recipes.torture.files --only 4711                   one mutation with its output

A mutation depends only on the seed and its number. One line of error or an unchanged result is right. A bug
in nmt, a traceback, a crash, a hang, executed code of a file, or another result without a message is wrong.
"""

import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from random import Random

import click

from recipes.torture import forks
from recipes.torture.cases import Case, cases, make_world
from recipes.torture.mutations import KINDS, RAN, SCARCE, read_only
from recipes.torture.table import Outcome, Tally, print_table

SECONDS = 60
"""Maximum duration of a command, which usually takes a tenth of a second."""

BUG_SIGNS = ("a bug in nmt", "Traceback", "Exception ignored")
"""Texts on stderr that show a bug in nmt."""

Entry = tuple[int, str, str, Outcome, str]
"""A mutation: its number, fault, kind of file, outcome and message."""


@dataclass(frozen=True, slots=True)
class Reference:
    """A command that ran with undamaged files."""

    result: object
    read: list[str]
    """Paths of the files that the command reads. Damage to other files would prove nothing."""


@click.command()
@click.option("--mutations", default=10_000, type=click.IntRange(1), help="Number of files to damage.")
@click.option("--seed", default=1)
@click.option("--only", type=int, help="Number of one mutation to reproduce.")
@click.option("--case", "names", multiple=True, help="Damage the files of these commands only.")
@click.option("--workers", default=2)
@click.option("--outcomes", type=click.Path(path_type=Path), help="File of outcomes, to resume later.")
def main(
    mutations: int, seed: int, only: int | None, names: tuple[str, ...], workers: int, outcomes: Path | None
) -> None:
    """Print tables of the outcomes. Exit with 1 if any is wrong."""
    forks.load()
    entries = _stored(outcomes)
    with tempfile.TemporaryDirectory(prefix="nmt-torture-") as folder:
        Path(folder).chmod(0o755)
        world = Path(folder) / "world"
        make_world(world)
        selected = [case for case in cases(world) if not names or case.name in names]
        expected = {case.name: _reference(case, world) for case in selected}
        if only is not None:
            print(mutated(world, expected, seed, only, shown=True))
            return
        numbers = [number for number in range(mutations) if number not in entries]
        with ProcessPoolExecutor(workers, get_context("fork")) as pool:
            new = pool.map(partial(mutated, world, expected, seed), numbers, chunksize=4)
            entries |= {entry[0]: entry for entry in _stored_first(new, outcomes)}
    faults, files = Tally(), Tally()
    for number, fault, file, outcome, message in sorted(entries.values()):
        faults.add(fault, outcome, f"{message} (--seed {seed} --only {number})")
        files.add(file, outcome)
    files.wrong.clear()
    for tally in (files, faults):
        tally.counts = dict(sorted(tally.counts.items()))
    print_table(files, "file")
    print()
    print_table(faults)
    raise SystemExit(faults.failed)


def _stored(outcomes: Path | None) -> dict[int, Entry]:
    """Return the entries that an interrupted campaign has stored, by number."""
    lines = outcomes.read_text("utf-8").splitlines() if outcomes and outcomes.exists() else []
    return {entry[0]: entry for entry in map(tuple, map(json.loads, lines))}


def _stored_first(entries: Iterator[Entry], outcomes: Path | None) -> Iterator[Entry]:
    """Append each entry to the file `outcomes`, and then yield it. Print wrong outcomes on stderr."""
    with outcomes.open("a", encoding="utf-8") if outcomes else nullcontext() as file:
        for entry in entries:
            if file:
                print(json.dumps(entry), file=file, flush=True)
            if entry[3] == "wrong":
                click.echo(f"wrong: {entry}", err=True)
            yield entry


def _reference(case: Case, world: Path) -> Reference:
    """Return the result of `case` on an undamaged copy, and the files read, found by access times."""
    with tempfile.TemporaryDirectory(dir=world) as folder:
        copy = _copy_files(case, Path(folder))
        files = sorted(path for path in copy.rglob("*") if path.is_file() and not path.is_symlink())
        for path in files:
            os.utime(path, (0, path.stat().st_mtime))
        completed = forks.succeed(case.arguments(copy), Path(folder))
        # If the disk records no access times, all files count as read.
        read = [path for path in files if path.exists() and path.stat().st_atime] or files
        return Reference(case.result(copy, completed.out), [str(path.relative_to(copy)) for path in read])


def mutated(
    world: Path, expected: Mapping[str, Reference], seed: int, number: int, shown: bool = False
) -> Entry:
    """Damage a file of one of the commands in `expected`, run the command, and return the outcome. `seed` and
    `number` select the command, the file and the damage. With `shown`, print these three and the output."""
    random = Random(f"{seed} {number}")
    candidates = [case for case in cases(world) if case.name in expected]
    case = random.choices(candidates, [case.weight for case in candidates])[0]
    with tempfile.TemporaryDirectory(dir=world) as folder:
        Path(folder).chmod(0o755)
        copy = _copy_files(case, Path(folder))
        path = copy / random.choice(expected[case.name].read)
        kind = random.choice([*KINDS, *SCARCE, "read-only"])
        if kind == "special" and case.any_result:
            kind = "hostile"  # a named pipe would be read as intcompleted
        limits = dict(forks.MEMORY_LIMIT)
        if kind in KINDS:
            KINDS[kind](path, random)
        elif kind in SCARCE:
            limits |= SCARCE[kind](random)
        else:
            read_only(copy)
        completed = forks.run(
            case.arguments(copy), Path(folder), SECONDS, limits, as_nobody=kind == "read-only"
        )
        outcome, message = judged(case, copy, completed, expected[case.name].result, forged=kind == "hostile")
        if (Path(folder) / RAN).exists():
            outcome, message = "wrong", "code in the file was run"
        if shown:
            print(case.name, path.relative_to(copy), kind, limits, completed, sep="\n")
    file = kind_of_file(path) if kind in KINDS else "none"
    return number, kind, file, outcome, f"{case.name}: {path.relative_to(copy)}, {message}"


def kind_of_file(path: Path) -> str:
    """Return the suffix of a file, or its name if it has none, as Markdown code."""
    return f"`{path.suffix or path.name}`"


def judged(
    case: Case, copy: Path, completed: forks.Completed, expected: object, forged: bool
) -> tuple[Outcome, str]:
    """Return the outcome of a command with a damaged file, and a message if the outcome is wrong. `expected`
    is the result without damage. `forged` is whether the damaged files have correct hashes, which hide
    damage."""
    if completed.code is None:
        return "wrong", "hangs"
    last = completed.errors.strip().splitlines()[-1:] or [""]
    if any(fault in completed.errors for fault in BUG_SIGNS) or {*completed.errors} & {"\x1b", "\x9b"}:
        return "wrong", last[0][:300]
    if completed.code:
        clean = completed.code in (1, 2) and last[0].startswith("Error: ") and len(last[0]) < 3000
        return ("clean", "") if clean else ("wrong", f"ends with {completed.code}: {last[0][:300]}")
    if case.any_result or case.result(copy, completed.out) == expected:
        return "identical", ""
    return ("clean", "") if forged else ("wrong", "another result without a message")


def _copy_files(case: Case, folder: Path) -> Path:
    """Copy the files of a case into `folder`, and return the path of the copy."""
    return Path(shutil.copytree(case.base, folder / "files", symlinks=True))


if __name__ == "__main__":
    main()
