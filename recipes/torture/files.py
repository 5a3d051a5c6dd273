"""Damages every file that `nmt` reads, one at a time, and looks at what the command makes of it.

python -m recipes.torture.files                  10,000 mutations and 20,000 lines of all kinds
python -m recipes.torture.files --only 4711      one mutation, and all that it led to

A mutation follows from the seed and its number alone. Right are one line of error, or the same result as
without it; wrong are a fault of nmt's own, a traceback, a crash, a hang, or another result in silence.
"""

import shutil
import tempfile
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import chain
from multiprocessing import get_context
from pathlib import Path
from random import Random

import click

from recipes.torture import forks
from recipes.torture.cases import CPU, Case, arguments, cases, make_world
from recipes.torture.lines import line_of_any_kind
from recipes.torture.mutations import KINDS
from recipes.torture.table import Outcome, Tally, print_table

SECONDS = 60
"""A command takes one or two; what takes so long hangs."""

LINES_AT_ONCE = 100
OWN_FAULTS = ("a fault of nmt's own", "Traceback", "Exception ignored")
Found = tuple[str, Outcome, str]
"""The fault, what came of it, and what to say of it."""


@click.command()
@click.option("--mutations", default=10_000, help="How many files to damage.")
@click.option("--lines", default=20_000, help="How many lines of all kinds to translate.")
@click.option("--seed", default=1)
@click.option("--only", type=int, help="The number of one mutation, to see it again.")
@click.option("--case", "names", multiple=True, help="Damage what these commands read; all if none is named.")
@click.option("--workers", default=2)
def main(
    mutations: int, lines: int, seed: int, only: int | None, names: tuple[str, ...], workers: int
) -> None:
    """Print a table of what came of so many faults; exit with 1 where any is wrong."""
    forks.load()
    tally = Tally()
    with tempfile.TemporaryDirectory(prefix="nmt-torture-") as folder:
        world = Path(folder) / "world"
        make_world(world)
        wanted = [case for case in cases(world) if not names or case.name in names]
        expected = {case.name: _expected(case, world) for case in wanted}
        if only is not None:
            print(mutated(world, expected, seed, only, shown=True))
            return
        with ProcessPoolExecutor(workers, get_context("fork")) as pool:
            blocks = -(-lines // LINES_AT_ONCE)
            damaged = pool.map(partial(mutated, world, expected, seed), range(mutations), chunksize=4)
            for found in chain(damaged, pool.map(partial(translated, world, seed), range(blocks))):
                tally.add(*found)
                if found[1] == "wrong":
                    click.echo(f"wrong: {found[0]}: {found[2]}", err=True)
    print_table(tally)
    raise SystemExit(bool(tally.wrong))


def _expected(case: Case, world: Path) -> object:
    """What comes of a command whose files are whole."""
    with tempfile.TemporaryDirectory(dir=world) as folder:
        at = _copied(case, Path(folder))
        ended = forks.run(case.arguments(at), Path(folder), SECONDS)
        if ended.code:
            raise RuntimeError(f"{case.name}: {ended.errors}")
        return case.result(at, ended.out)


def mutated(
    world: Path, expected: Mapping[str, object], seed: int, number: int, shown: bool = False
) -> Found:
    """Damage a file of one of the commands with a result to expect, run the command, and judge."""
    random = Random(f"{seed} {number}")
    every = [case for case in cases(world) if case.name in expected]
    case = random.choices(every, [case.weight for case in every])[0]
    with tempfile.TemporaryDirectory(dir=world) as folder:
        at = _copied(case, Path(folder))
        files = sorted(path for path in at.rglob("*") if path.is_file() and not path.is_symlink())
        path, kind = random.choice(files), random.choice([*KINDS])
        if kind == "special" and case.any_result:
            kind = "hostile"  # who names a pipe wants it to be read
        name = f"{case.name}: {path.relative_to(at)}"
        KINDS[kind](path, random)
        ended = forks.run(case.arguments(at), Path(folder), SECONDS)
        outcome, told = judged(case, at, ended, expected[case.name], forged=kind == "hostile")
        if shown:
            print(name, kind, ended, sep="\n")
    return kind, outcome, f"{name}, {told} (--seed {seed} --only {number})"


def judged(case: Case, at: Path, ended: forks.Ended, expected: object, forged: bool) -> tuple[Outcome, str]:
    """Whether a command that was given a damaged file has done right."""
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
    return ("clean", "") if forged else ("wrong", "another result in silence")


def translated(world: Path, seed: int, number: int) -> Found:
    """Translate lines of all kinds: as many must come out."""
    random = Random(f"{seed} lines {number}")
    with tempfile.TemporaryDirectory(dir=world) as folder:
        text = Path(folder) / "in"
        text.write_bytes(b"".join(line_of_any_kind(random) + b"\n" for _ in range(LINES_AT_ONCE)))
        command = arguments(f"translate {{golden}}/model --beam 1 --input {{at}} {CPU}", text)
        ended = forks.run(command, Path(folder), 10 * SECONDS)
    right = ended.code == 0 and ended.out.count(b"\n") == LINES_AT_ONCE
    told = f"ends with {ended.code}: {ended.errors[-300:]} (--seed {seed}, lines {number})"
    return f"{LINES_AT_ONCE} lines of all kinds", "identical" if right else "wrong", told


def _copied(case: Case, folder: Path) -> Path:
    at = folder / "files"
    shutil.copytree(case.base, at, symlinks=True)
    return at


if __name__ == "__main__":
    main()
