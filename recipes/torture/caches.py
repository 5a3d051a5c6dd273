"""Damages files that `nmt` stores for itself: parts of a dataset in the making, and compiled kernels.

python -m recipes.torture.caches --mutations 60 --seed 1

Each mutation damages one file, then runs the command again. It must end with the result of an undamaged run,
or with one line of error.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from random import Random

import click

from nmt_cli.runtime.kernels.loading import PACKAGE, PREFIX
from recipes.torture.preprocess import digest
from recipes.torture.runs import refused_plainly
from recipes.torture.table import Tally, print_table

NMT = (sys.executable, "-m", "nmt_cli")
MODEL = Path(__file__).resolve().parent.parent.parent / "tests" / "golden" / "model"
DAMAGES = ("flip", "cut", "empty", "remove")


@click.command()
@click.option("--mutations", default=60, show_default=True, help="Files to damage, for each kind of file.")
@click.option("--seed", default=1, show_default=True)
def main(mutations: int, seed: int) -> None:
    """Print a table of the outcomes. Exit with 1 if any was wrong."""
    tally, random = Tally(), Random(seed)
    with tempfile.TemporaryDirectory() as scratch:
        damage_parts(Path(scratch), mutations, random, tally)
        damage_kernels(Path(scratch), mutations, random, tally)
    print_table(tally, "file, damage")
    sys.exit(bool(tally.wrong))


def damage_parts(folder: Path, mutations: int, random: Random, tally: Tally) -> None:
    """Damage the work folder that two shards of `nmt preprocess` leave, then merge it."""
    corpus, out = folder / "corpus", folder / "dataset"
    words = ["".join(random.choices("abcdefg", k=random.randint(1, 6))) for _ in range(200)]
    lines = [" ".join(random.choices(words, k=random.randint(2, 9))) for _ in range(600)]
    for language in ("en", "de"):
        text = "".join(f"{line[:: 1 if language == 'en' else -1]}\n" for line in lines)
        corpus.with_suffix(f".{language}").write_text(text, encoding="utf-8")
    options = (
        "--source-lang",
        "en",
        "--target-lang",
        "de",
        "--train",
        corpus,
        "--tokenizer",
        "char",
        "--quiet",
    )
    command = ("preprocess", *options, "--out", out)
    for shard in ("1/2", "2/2"):
        run(*command, "--shard", shard)
    work, whole = out.with_name(f".{out.name}.work"), folder / "whole"
    shutil.copytree(work, whole)
    run(*command)
    expected = digest(out)
    for _ in range(mutations):
        for place in (out, work):
            shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(whole, work)
        name, damage = damaged(work, random)
        done = run(*command)
        same = done.returncode == 0 and digest(out) == expected
        record(tally, f"part, {damage}", name, done, same)


def damage_kernels(folder: Path, mutations: int, random: Random, tally: Tally) -> None:
    """Damage the compiled kernels that `nmt translate` loads, then translate again."""
    cache, command = folder / "kernels", ("translate", MODEL, "--device", "cpu", "--quiet")
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(cache)}
    expected = run(*command, text="a b c\n")
    folders = (PACKAGE / "runtime" / "kernels" / "__pycache__").glob(f"{PREFIX}*")
    used = max(folders, key=lambda path: path.stat().st_mtime)
    shutil.copytree(used, cache / used.name)
    for _ in range(mutations):
        name, damage = damaged(cache, random)
        done = run(*command, environment=environment, text="a b c\n")
        same = (done.returncode, done.stdout) == (0, expected.stdout)
        record(tally, f"kernel, {damage}", name, done, same)


def damaged(folder: Path, random: Random) -> tuple[str, str]:
    """Damage one file of `folder`, and return its name and the damage."""
    file = random.choice(sorted(path for path in folder.rglob("*") if path.is_file()))
    damage, content = random.choice(DAMAGES), bytearray(file.read_bytes())
    if damage == "remove":
        file.unlink()
    elif damage == "flip" and content:
        content[random.randrange(len(content))] ^= 1 << random.randrange(8)
        file.write_bytes(content)
    else:
        file.write_bytes(content[: random.randrange(len(content)) if damage == "cut" and content else 0])
    return str(file.relative_to(folder)), damage


def record(tally: Tally, fault: str, name: str, done: subprocess.CompletedProcess[str], same: bool) -> None:
    """Count one outcome."""
    if same:
        tally.add(fault, "identical")
    elif refused_plainly(done.returncode, done.stderr):
        tally.add(fault, "clean")
    else:
        tally.add(fault, "wrong", f"{name}: exit code {done.returncode}, {done.stderr[-300:]!r}")


def run(
    *arguments: object, environment: Mapping[str, str] | None = None, text: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run `nmt` with these arguments, and `text` on stdin."""
    command = [*NMT, *map(str, arguments)]
    return subprocess.run(command, env=environment, input=text, capture_output=True, text=True, check=False)


if __name__ == "__main__":
    main()
