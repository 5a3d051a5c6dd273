"""Damage every file that `nmt` reads, one at a time, and check the outcome of the command.

python -m recipes.torture.files --kept found.jsonl     10,000 mutations; run it again to resume
python -m recipes.torture.files --only 4711            one mutation with its output

A mutation depends only on the seed and its number. One line of error or an unchanged result is right. A bug
in nmt, a traceback, a crash, a hang, executed code of a file, or another result without a message is wrong.
"""

import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
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

OWN_FAULTS = ("a bug in nmt", "Traceback", "Exception ignored")
Found = tuple[int, str, str, Outcome, str]
"""The number, the fault, the kind of file, the outcome and a message."""


@dataclass(frozen=True, slots=True)
class Whole:
    """The result of a command with undamaged files."""

    result: object
    read: list[str]
    """The files that the command reads. Damage to other files would prove nothing."""


@click.command()
@click.option("--mutations", default=10_000, help="Number of files to damage.")
@click.option("--seed", default=1)
@click.option("--only", type=int, help="Number of one mutation to reproduce.")
@click.option("--case", "names", multiple=True, help="Damage the files of these commands only.")
@click.option("--workers", default=2)
@click.option(
    "--kept", type=click.Path(path_type=Path), help="File that stores the outcomes, to resume later."
)
def main(
    mutations: int, seed: int, only: int | None, names: tuple[str, ...], workers: int, kept: Path | None
) -> None:
    """Print tables of the outcomes. Exit with 1 if any is wrong."""
    forks.load()
    known = _known(kept)
    with tempfile.TemporaryDirectory(prefix="nmt-torture-") as folder:
        Path(folder).chmod(0o755)
        world = Path(folder) / "world"
        make_world(world)
        wanted = [case for case in cases(world) if not names or case.name in names]
        expected = {case.name: _expected(case, world) for case in wanted}
        if only is not None:
            print(mutated(world, expected, seed, only, shown=True))
            return
        left = [number for number in range(mutations) if number not in known]
        with ProcessPoolExecutor(workers, get_context("fork")) as pool:
            found = pool.map(partial(mutated, world, expected, seed), left, chunksize=4)
            known |= {each[0]: each for each in _noted(found, kept)}
    faults, files = Tally(), Tally()
    for number, fault, file, outcome, message in sorted(known.values()):
        faults.add(fault, outcome, f"{message} (--seed {seed} --only {number})")
        files.add(file, outcome)
    files.wrong.clear()
    print_table(files.sorted(), "file")
    print()
    print_table(faults.sorted())
    raise SystemExit(bool(faults.wrong))


def _known(kept: Path | None) -> dict[int, Found]:
    """Return the outcomes that an interrupted campaign stored."""
    lines = kept.read_text("utf-8").splitlines() if kept and kept.exists() else []
    return {each[0]: each for each in map(tuple, map(json.loads, lines))}


def _noted(found: Iterator[Found], kept: Path | None) -> Iterator[Found]:
    """Yield outcomes after storing them in the file `kept`."""
    with ExitStack() as stack:
        file = stack.enter_context(kept.open("a", encoding="utf-8")) if kept else None
        for each in found:
            if file:
                print(json.dumps(each), file=file, flush=True)
            if each[3] == "wrong":
                click.echo(f"wrong: {each}", err=True)
            yield each


def _expected(case: Case, world: Path) -> Whole:
    with tempfile.TemporaryDirectory(dir=world) as folder:
        at = _copied(case, Path(folder))
        files = sorted(path for path in at.rglob("*") if path.is_file() and not path.is_symlink())
        for path in files:
            os.utime(path, (0, path.stat().st_mtime))
        ended = forks.run(case.arguments(at), Path(folder), SECONDS)
        if ended.code:
            raise RuntimeError(f"{case.name}: {ended.errors}")
        # If the disk records no access times, all files count as read.
        read = [path for path in files if path.exists() and path.stat().st_atime] or files
        return Whole(case.result(at, ended.out), [str(path.relative_to(at)) for path in read])


def mutated(world: Path, expected: Mapping[str, Whole], seed: int, number: int, shown: bool = False) -> Found:
    """Damage a file of one of the commands in `expected`, run the command, and return the outcome."""
    random = Random(f"{seed} {number}")
    every = [case for case in cases(world) if case.name in expected]
    case = random.choices(every, [case.weight for case in every])[0]
    with tempfile.TemporaryDirectory(dir=world) as folder:
        Path(folder).chmod(0o755)
        at = _copied(case, Path(folder))
        path = at / random.choice(expected[case.name].read)
        kind = random.choice([*KINDS, *SCARCE, "read-only"])
        if kind == "special" and case.any_result:
            kind = "hostile"  # a named pipe would be read as intended
        limits = dict(forks.MOST_MEMORY)
        if kind in KINDS:
            KINDS[kind](path, random)
        elif kind in SCARCE:
            limits |= SCARCE[kind](random)
        else:
            read_only(at)
        ended = forks.run(case.arguments(at), Path(folder), SECONDS, limits, as_nobody=kind == "read-only")
        outcome, message = judged(case, at, ended, expected[case.name].result, forged=kind == "hostile")
        if (Path(folder) / RAN).exists():
            outcome, message = "wrong", "code in the file was run"
        if shown:
            print(case.name, path.relative_to(at), kind, limits, ended, sep="\n")
    file = kind_of_file(path) if kind in KINDS else "none"
    return number, kind, file, outcome, f"{case.name}: {path.relative_to(at)}, {message}"


def kind_of_file(path: Path) -> str:
    """Return the suffix of a file, or its name if it has none."""
    return f"`{path.suffix or path.name}`"


def judged(case: Case, at: Path, ended: forks.Ended, expected: object, forged: bool) -> tuple[Outcome, str]:
    """Return whether a command handled a damaged file correctly, and a message."""
    if ended.code is None:
        return "wrong", "hangs"
    last = ended.errors.strip().splitlines()[-1:] or [""]
    if any(fault in ended.errors for fault in OWN_FAULTS) or {*ended.errors} & {"\x1b", "\x9b"}:
        return "wrong", last[0][:300]
    if ended.code:
        clean = ended.code in (1, 2) and last[0].startswith("Error: ") and len(last[0]) < 3000
        return ("clean", "") if clean else ("wrong", f"ends with {ended.code}: {last[0][:300]}")
    if case.any_result or case.result(at, ended.out) == expected:
        return "identical", ""
    return ("clean", "") if forged else ("wrong", "another result without a message")


def _copied(case: Case, folder: Path) -> Path:
    at = folder / "files"
    shutil.copytree(case.base, at, symlinks=True)
    return at


if __name__ == "__main__":
    main()
