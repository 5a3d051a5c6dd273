"""Time `nmt preprocess`. Print tables for results.md.

python -m recipes.benchmarks.preprocess     multi30k and scale
"""

import random
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from recipes.benchmarks import machine
from recipes.benchmarks.machine import LANGUAGES, data_folder, method, print_head, print_row, scratch

NMT = [*machine.NMT, "preprocess", "--quiet", "--source-lang", "en", "--target-lang", "de"]
POLL_SECONDS = 0.05


@dataclass(frozen=True)
class Run:
    """The time of a command, and the memory of its largest process."""

    seconds: float
    peak_mb: float


@click.group(help=method(__doc__), invoke_without_command=True)
@click.pass_context
def main(context: click.Context) -> None:
    """Measure `nmt preprocess`."""
    if context.invoked_subcommand is None:
        for command in (multi30k, scale):
            context.invoke(command)


@main.command()
@click.option("--repeats", default=3)
def multi30k(repeats: int) -> None:
    """Preprocess Multi30k with a joint vocabulary of 10,000."""
    data = data_folder() / "multi30k"
    print()
    print_head("Multi30k, 10k joint", "seconds (median)", "peak MB of a process")
    for tokenizer in ("sentencepiece", "bpe"):
        with scratch() as folder:
            out = folder / "dataset"
            sets = ["--train", data / "train", "--valid", data / "valid", "--test", data / "test_2016_flickr"]
            command = [*NMT, *sets, "--tokenizer", tokenizer, "--vocab-size", 10_000, "--out", out]
            runs = []
            for _ in range(repeats):
                shutil.rmtree(out, ignore_errors=True)
                runs.append(_measured(command))
        seconds, peak = statistics.median(run.seconds for run in runs), max(run.peak_mb for run in runs)
        print_row(tokenizer, f"{seconds:.1f}", f"{peak:.0f}")


@main.command()
@click.option("--pairs", default=4_500_000)
def scale(pairs: int) -> None:
    """Preprocess a tenth of the pairs, then all. Memory must not grow, and time only in proportion."""
    print()
    print_head("pairs (Multi30k with 2 words a line changed)", "seconds", "pairs/s", "peak MB of a process")
    for number in (pairs // 10, pairs):
        with scratch() as folder:
            _vary(data_folder() / "multi30k" / "train", folder / "corpus", number)
            options = ["--vocab-size", 10_000, "--out", folder / "dataset"]
            run = _measured([*NMT, "--train", folder / "corpus", *options])
        speed = f"{number / run.seconds:,.0f}"
        print_row(f"{number:,}", f"{run.seconds:.1f}", speed, f"{run.peak_mb:.0f}")


def _measured(command: Sequence[object]) -> Run:
    """Run a command. Return its time and the peak memory of its largest process."""
    start, peaks = time.perf_counter(), {0: 0}
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(list(map(str, command)), stdout=subprocess.DEVNULL, stderr=errors)
        while process.poll() is None:
            for pid in _family(process.pid):
                peaks[pid] = max(peaks.get(pid, 0), _peak_kb(pid))
            time.sleep(POLL_SECONDS)
        seconds = time.perf_counter() - start
        if process.returncode:
            errors.seek(0)
            raise click.ClickException(f"{command[0]} failed: {errors.read().decode()}")
    return Run(seconds, max(peaks.values()) / 1000)


def _family(pid: int) -> list[int]:
    """Return the ids of a process and of all its descendants."""
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return [pid]
    return [pid, *(member for child in children for member in _family(int(child)))]


def _peak_kb(pid: int) -> int:
    try:
        status = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in status if line.startswith("VmHWM")), 0)


def _vary(source: Path, target: Path, pairs: int) -> None:
    """Write `pairs` pairs: the lines of `source` repeatedly, with two words of each replaced at random."""
    for lang in LANGUAGES:
        path = Path(f"{source}.{lang}")
        lines = [line.split() for line in path.read_text("utf-8").removesuffix("\n").split("\n")]
        words = [word for line in lines for word in line]
        draw = random.Random(lang)
        with Path(f"{target}.{lang}").open("w", encoding="utf-8", newline="\n") as file:
            for number in range(pairs):
                line = list(lines[number % len(lines)])
                for _ in range(2):
                    line[int(draw.random() * len(line))] = words[int(draw.random() * len(words))]
                file.write(" ".join(line) + "\n")


if __name__ == "__main__":
    main()
