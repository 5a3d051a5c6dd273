"""Time commands with next to no work: the time is that of their start. Print tables for results.md.

python -m recipes.benchmarks.startup translate MODEL    one line
python -m recipes.benchmarks.startup texts              ten lines, scored and preprocessed
python -m recipes.benchmarks.startup loading MODEL      memory while a model is loaded, and after
"""

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from itertools import product
from pathlib import Path

import click

from recipes.benchmarks.machine import NMT, method, print_head, print_row, scratch

LINE = "A dog runs through the snow.\n"
WORDS = {
    "en": (("A dog", "A man"), ("runs", "sits"), ("in the snow", "in the park", "in the house")),
    "de": (("Ein Hund", "Ein Mann"), ("läuft", "sitzt"), ("im Schnee", "im Park", "im Haus")),
}

LOADING = """
import re
import sys
from pathlib import Path

import torch

from nmt_cli.api import load
from nmt_cli.runtime.kernels.loading import compiled_kernels


def megabytes(name):
    return int(re.search(name + r":\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) / 1000 * 1.024


model, precision = sys.argv[1:]
compiled_kernels("engine.kernels.steps")
torch.ones(999, 999) @ torch.ones(999, 999)
Path("/proc/self/clear_refs").write_text("5")  # resets the peak
before = megabytes("VmRSS")
loaded = load(model, device="cpu", precision=precision)
print(megabytes("VmHWM") - before, megabytes("VmRSS") - before)
"""
"""Prints the peak memory while a model is loaded and the memory after, both less the memory before."""


@click.group(help=method(__doc__))
def main() -> None:
    """Measure how long commands take to start."""


@main.command()
@click.argument("model", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--repeats", default=5)
def translate(model: Path, repeats: int) -> None:
    """Translate a line with MODEL, whole commands in turns."""
    commands: dict[str, Sequence[object]] = {
        "Python and `import torch`": [sys.executable, "-c", "import torch"]
    }
    for precision in ("fp32", "int8"):
        command = [*NMT, "translate", model, "--quiet", "--precision", precision]
        commands[f"`nmt translate --precision {precision}`"] = command
    _print("a line", _measured(commands, repeats))


@main.command()
@click.option("--repeats", default=5)
def texts(repeats: int) -> None:
    """Score and preprocess ten lines, whole commands in turns."""
    with scratch() as folder:
        for lang, words in WORDS.items():
            lines = [f"{' '.join(sentence)}.\n" for sentence in product(*words)]
            (folder / f"corpus.{lang}").write_text("".join(lines[:10]), encoding="utf-8")
        german = folder / "corpus.de"
        score = [*NMT, "score", "--quiet", "--reference", german, german]
        preprocess = [*NMT, *"preprocess --quiet --source-lang en --target-lang de --overwrite".split()]
        preprocess += ["--train", str(folder / "corpus"), "--out", str(folder / "dataset")]
        sacrebleu = [sys.executable, "-m", "sacrebleu", "--quiet", german, "-i", german, "-m", "bleu"]
        commands: dict[str, Sequence[object]] = {
            "`nmt score`": score,
            "`nmt score --metric bleu`": [*score, "--metric", "bleu"],
            "`sacrebleu -m bleu`": sacrebleu,
            "`nmt preprocess`": [*preprocess, "--vocab-size", "38"],
            "`nmt preprocess --tokenizer bpe`": [*preprocess, "--tokenizer", "bpe", "--vocab-size", "60"],
        }
        _print("ten lines", _measured(commands, repeats))


@main.command()
@click.argument("model", type=click.Path(exists=True, file_okay=False, path_type=Path))
def loading(model: Path) -> None:
    """Measure the memory of MODEL, a model folder. Count mapped pages of the weights, too."""
    size = sum(file.stat().st_size for file in model.glob("*.safetensors")) / 1e6
    print()
    titles = f"weights of {size:.0f} MB", "MB at most while loading", "of the file", "MB after", "of the file"
    print_head(*titles)
    for precision in ("fp32", "int8"):
        command = [sys.executable, "-c", LOADING, str(model), precision]
        output = subprocess.run(command, check=True, text=True, capture_output=True).stdout
        most, after = map(float, output.split())
        print_row(precision, f"{most:.0f}", f"{most / size:.2f} x", f"{after:.0f}", f"{after / size:.2f} x")


def _measured(commands: dict[str, Sequence[object]], repeats: int) -> dict[str, list[tuple[float, float]]]:
    """Return processor seconds, child processes included, and seconds of each run, by command."""
    runs: dict[str, list[tuple[float, float]]] = {name: [] for name in commands}
    for number in range(repeats + 1):
        for name, command in commands.items():
            before, start, words = os.times(), time.perf_counter(), list(map(str, command))
            subprocess.run(words, input=LINE, check=True, text=True, capture_output=True)
            seconds, after = time.perf_counter() - start, os.times()
            spent = sum(after[2:4]) - sum(before[2:4])
            if number:  # the first run fills caches and compiles
                runs[name].append((spent, seconds))
    return runs


def _print(what: str, found: dict[str, list[tuple[float, float]]]) -> None:
    print()
    print_head(what, "processor seconds (median)", "seconds (median)", "seconds (least)")
    for name, runs in found.items():
        spent, seconds = zip(*runs, strict=True)
        medians = statistics.median(spent), statistics.median(seconds), min(seconds)
        print_row(name, *(f"{median:.2f}" for median in medians))


if __name__ == "__main__":
    main()
