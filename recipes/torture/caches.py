"""Damage files that `nmt` stores for itself: parts of an unfinished dataset, and compiled kernels.

python -m recipes.torture.caches --mutations 60 --seed 1

Each mutation damages one file, then runs the command again. The result must equal that of an undamaged run,
or the command must end with one line of error.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from random import Random
from subprocess import CompletedProcess
from unittest.mock import patch

import click

from nmt_cli.data.preprocessing import pipeline, training_set
from nmt_cli.data.preprocessing.parts import work_folder
from nmt_cli.runtime.kernels.loading import PACKAGE, PREFIX
from recipes.torture import forks
from recipes.torture.preprocess import digest
from recipes.torture.runs import refused_plainly
from recipes.torture.table import Tally, print_table

NMT = (sys.executable, "-m", "nmt_cli")
MODEL = Path(__file__).resolve().parents[2] / "tests" / "golden" / "model"
DAMAGES = ("flip", "cut", "garbage", "empty", "remove")
SECONDS = 60
"""Maximum duration of a command."""

PAIRS, HELD_OUT = 400, 20
"""Number of pairs, and of those that become the validation set."""

BLOCK_PAIRS, BLOCKS_PER_PART = 20, 4
"""Sizes of blocks and parts. They are so small that the corpus has several parts."""


@click.command()
@click.option(
    "--mutations",
    default=60,
    type=click.IntRange(1),
    show_default=True,
    help="Number of damaged files of each kind.",
)
@click.option("--seed", default=1, show_default=True)
def main(mutations: int, seed: int) -> None:
    """Print a table of the outcomes. Exit with 1 if any was wrong."""
    vars(training_set).update(BLOCK_PAIRS=BLOCK_PAIRS, BLOCKS_A_PART=BLOCKS_PER_PART)
    tally, random = Tally(), Random(seed)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        command = preprocess_command(folder, random)
        damage_parts(folder / "dataset", command, mutations, random, tally)
        damage_kernels(folder, mutations, random, tally)
    print_table(tally, "file, damage")
    sys.exit(tally.failed)


def preprocess_command(folder: Path, random: Random) -> list[str]:
    """Write a random corpus. Return the command that prepares it with BPE and a validation set."""
    words = ["".join(random.choices("abcdefg", k=random.randint(1, 6))) for _ in range(200)]
    lines = [" ".join(random.choices(words, k=random.randint(2, 9))) for _ in range(PAIRS)]
    (folder / "corpus.en").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    (folder / "corpus.de").write_text("".join(f"{line[::-1]}\n" for line in lines), encoding="utf-8")
    corpus = ("--source-lang", "en", "--target-lang", "de", "--train", str(folder / "corpus"))
    tokenizer = ("--tokenizer", "bpe", "--vocab-size", "60")
    held_out = ("--set", f"corpus.valid_size={HELD_OUT}")
    return ["preprocess", *corpus, *tokenizer, *held_out, "--workers", "1", "--quiet"]


def damage_parts(out: Path, command: list[str], mutations: int, random: Random, tally: Tally) -> None:
    """Damage a file of unfinished parts of `out` `mutations` times. Each time, run `command` and count the
    outcome."""
    command, work, parts = [*command, "--out", str(out)], work_folder(out), out.with_name("parts")
    # A finished run would remove its parts.
    with patch.object(pipeline, "drop_work", lambda work: None):
        forks.succeed(command, out.parent)
    shutil.copytree(work, parts)
    expected = digest(out)
    for _ in range(mutations):
        for path in (out, work):
            shutil.rmtree(path, ignore_errors=True)
        shutil.copytree(parts, work)
        name, damage = damage_file(work, random)
        done = forks.run(command, out.parent, SECONDS)
        same = done.code == 0 and digest(out) == expected
        record(tally, f"part, {damage}", name, done.code, done.errors, same)


def damage_kernels(folder: Path, mutations: int, random: Random, tally: Tally) -> None:
    """Damage a compiled kernel `mutations` times. Each time, translate a line and count the outcome."""
    cache, command = folder / "kernels", ("translate", MODEL, "--device", "cpu", "--quiet")
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(cache)}
    expected = run(*command, text="a b c\n")
    folders = (PACKAGE / "runtime" / "kernels" / "__pycache__").glob(f"{PREFIX}*")
    newest = max(folders, key=lambda path: path.stat().st_mtime)
    shutil.copytree(newest, cache / newest.name)
    for _ in range(mutations):
        name, damage = damage_file(cache, random)
        done = run(*command, environment=environment, text="a b c\n")
        same = (done.returncode, done.stdout) == (0, expected.stdout)
        record(tally, f"kernel, {damage}", name, done.returncode, done.stderr, same)


def damage_file(folder: Path, random: Random) -> tuple[str, str]:
    """Damage a random file of `folder`. Return the file's path in `folder` and the damage, of `DAMAGES`."""
    file = random.choice(sorted(path for path in folder.rglob("*") if path.is_file()))
    damage, content = random.choice(DAMAGES), bytearray(file.read_bytes())
    position = random.randrange(len(content) or 1)
    if damage == "remove":
        file.unlink()
        return str(file.relative_to(folder)), damage
    if damage == "flip" and content:
        content[position] ^= 1 << random.randrange(8)
    elif damage == "garbage":
        content = bytearray(random.randbytes(len(content) or 1))
    else:
        content = content[:position] if damage == "cut" else bytearray()
    file.write_bytes(content)
    return str(file.relative_to(folder)), damage


def record(tally: Tally, fault: str, name: str, code: int | None, stderr: str, same: bool) -> None:
    """Count the outcome of damage to the file `name`. `same` is whether the result is as expected."""
    if same:
        tally.add(fault, "identical")
    elif refused_plainly(code, stderr):
        tally.add(fault, "clean")
    else:
        tally.add(fault, "wrong", f"{name}: exit code {code}, {stderr[-300:]!r}")


def run(
    *arguments: object, environment: Mapping[str, str] | None = None, text: str = ""
) -> CompletedProcess[str]:
    """Run `nmt` with these arguments, and `text` on stdin."""
    command = [*NMT, *map(str, arguments)]
    return subprocess.run(command, env=environment, input=text, capture_output=True, text=True, check=False)


if __name__ == "__main__":
    main()
