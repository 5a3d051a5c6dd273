"""Time `nmt score` against sacrebleu's command. Print tables for results.md.

python -m recipes.benchmarks.score                           speed
python -m recipes.benchmarks.score size --lines 1000000      a text of any length, one metric at a time
"""

import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import click

from recipes.benchmarks import machine
from recipes.benchmarks.machine import method, print_head, print_row, scratch

LINES = 3003
"""The length of newstest2014."""

NMT = [*machine.NMT, "score", "--quiet"]
SACREBLEU = [sys.executable, "-m", "sacrebleu", "--quiet"]


@click.group(help=method(__doc__), invoke_without_command=True)
@click.pass_context
def main(context: click.Context) -> None:
    """Measure `nmt score`."""
    if context.invoked_subcommand is None:
        context.invoke(speed)


@main.command()
@click.option("--repeats", default=5)
def speed(repeats: int) -> None:
    """Time whole commands in turns. Sentences are about as long as those of newstest2014."""
    with _texts() as (ref, hyp, other):
        ours, theirs = [*NMT, "--reference", ref], [*SACREBLEU, ref, "-i", hyp]
        paired = [*SACREBLEU, ref, "-i", hyp, other, "-m", "bleu", "--paired-bs", "-f", "text"]
        commands: dict[str, Sequence[object]] = {
            "`nmt score`: BLEU, the paper's BLEU, chrF": [*ours, hyp],
            "`nmt score`: BLEU, chrF": [*ours, hyp, "--metric", "bleu", "--metric", "chrf"],
            "`sacrebleu`: BLEU, chrF": [*theirs, "-m", "bleu", "chrf"],
            "`nmt score`: TER": [*ours, hyp, "--metric", "ter"],
            "`sacrebleu`: TER": [*theirs, "-m", "ter"],
            "`nmt score`: BLEU of two, bootstrap": [
                *(*ours, hyp, other, "--metric", "bleu", "--significance", "bootstrap")
            ],
            "`sacrebleu`: BLEU of two, bootstrap": paired,
        }
        seconds: dict[str, list[float]] = {name: [] for name in commands}
        for _ in range(repeats):
            for name, command in commands.items():
                start = time.perf_counter()
                _output(command)
                seconds[name].append(time.perf_counter() - start)
        words = len(ref.read_text(encoding="utf-8").split()) / LINES
    print()
    print_head(f"{LINES:,} lines of {words:.0f} words", "seconds (median)", "seconds (least)")
    for name, runs in seconds.items():
        print_row(name, f"{statistics.median(runs):.2f}", f"{min(runs):.2f}")


@main.command()
@click.option("--lines", default=100_000, help="Number of captions, repeated ones with a word changed.")
@click.option(
    "--metric", "metrics", multiple=True, default=("bleu", "chrf"), type=click.Choice(["bleu", "chrf"])
)
@click.option("--alone", is_flag=True, help="Skip sacrebleu: 6 KB per line for BLEU, 26 for chrF.")
def size(lines: int, metrics: Sequence[str], alone: bool) -> None:
    """Measure processor seconds and memory of whole commands for each metric, and compare scores."""
    print()
    print_head(f"{lines:,} lines", "processor seconds", "peak MB", "score")
    with scratch() as folder:
        ref, hyp = folder / "ref.de", folder / "hyp.de"
        _write_captions(ref, hyp, lines)
        for metric in metrics:
            ours = [*NMT, "--json", "--metric", metric, "--reference", ref, hyp]
            _print_size(f"`nmt score --metric {metric}`", ours)
            if not alone:
                _print_size(
                    f"`sacrebleu -m {metric}`", [*SACREBLEU, ref, "-i", hyp, "-w", "12", "-m", metric]
                )


def _print_size(name: str, command: Sequence[object]) -> None:
    with tempfile.TemporaryFile("w+") as out:
        process = subprocess.Popen(list(map(str, command)), stdout=out, stderr=subprocess.DEVNULL)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        result = json.load(out) if not process.returncode else None
    if not result:
        print_row(name, "failed", "", "")
        return
    score = result["systems"][0]["scores"][0]["score"] if "systems" in result else result["score"]
    seconds = used.ru_utime + used.ru_stime
    print_row(name, f"{seconds:.1f}", f"{used.ru_maxrss // 1024:,}", f"{score:.12f}")


def _write_captions(ref: Path, hyp: Path, count: int) -> None:
    """Write `count` captions to `ref`. Change a word in repeated captions. `hyp` loses one word in ten."""
    captions = [line.split() for line in _captions() if line.strip()]
    draw = random.Random(1)
    with ref.open("w", encoding="utf-8") as references, hyp.open("w", encoding="utf-8") as hypotheses:
        for number in range(count):
            words = [*captions[number % len(captions)]]
            if number >= len(captions):
                words[draw.randrange(len(words))] = draw.choice(draw.choice(captions))
            references.write(" ".join(words) + "\n")
            hypotheses.write(" ".join(word for word in words if draw.random() >= 1 / 10) + "\n")


def _captions() -> list[str]:
    return (machine.data_folder() / "multi30k" / "train.de").read_text(encoding="utf-8").split("\n")


@contextmanager
def _texts() -> Iterator[tuple[Path, Path, Path]]:
    """Provide a file of two captions per line, and copies without a tenth and an eighth of the words."""
    captions = _captions()[: 2 * LINES]
    lines = [
        f"{one.strip().removesuffix('.')}, {two.strip()}"
        for one, two in zip(captions[::2], captions[1::2], strict=True)
    ]
    with scratch() as folder:
        files = tuple(folder / name for name in ("ref.de", "hyp.de", "other.de"))
        for file, lost in zip(files, (0, 1 / 10, 1 / 8), strict=True):
            draw = random.Random(file.name)
            kept = (" ".join(word for word in line.split() if draw.random() >= lost) for line in lines)
            file.write_text("".join(f"{line}\n" for line in kept), encoding="utf-8", newline="\n")
        yield files[0], files[1], files[2]


def _output(command: Sequence[object]) -> str:
    return subprocess.run(
        list(map(str, command)), check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ).stdout


if __name__ == "__main__":
    main()
