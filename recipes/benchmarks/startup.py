"""Times commands that have next to nothing to do: what they cost is their start. Prints tables for README.md.

python recipes/benchmarks/startup.py translate MODEL    a line, with CTranslate2 beside it if it is installed
python recipes/benchmarks/startup.py texts              ten lines scored, and ten made into a dataset
python recipes/benchmarks/startup.py loading MODEL      the memory that it takes while loaded, and then
"""

import importlib.util
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import click

NMT = [sys.executable, "-m", "nmt_cli"]
LINE = "A dog runs through the snow.\n"
ENGLISH = "\n".join(
    f"{who} {does} in the {place}."
    for who in ("A dog", "A man")
    for does in ("runs", "sits")
    for place in ("snow", "park", "house")
).split("\n")[:10]
GERMAN = "\n".join(
    f"{who} {does} {place}."
    for who in ("Ein Hund", "Ein Mann")
    for does in ("läuft", "sitzt")
    for place in ("im Schnee", "im Park", "im Haus")
).split("\n")[:10]

CTRANSLATE2 = """
import sys
import ctranslate2
import sentencepiece

folder, precision = sys.argv[1:]
subwords = sentencepiece.SentencePieceProcessor(model_file=f"{folder}/source.spm")
translator = ctranslate2.Translator(folder, compute_type=precision, inter_threads=1)
for line in sys.stdin:
    (found,) = translator.translate_batch([subwords.encode(line.strip(), out_type=str)], beam_size=4)
    print(subwords.decode(found.hypotheses[0]))
"""
"""The least that somebody has to write to translate lines with it."""

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
for room in ("attention", "decoding.fast", "decoding.search", "model.pointwise", "runtime.kernels"):
    compiled_kernels(room)
torch.ones(999, 999) @ torch.ones(999, 999)
Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
before = megabytes("VmRSS")
loaded = load(model, device="cpu", precision=precision)
print(megabytes("VmHWM") - before, megabytes("VmRSS") - before)
"""
"""What a process holds at most while it loads a model, and holds then, besides what it held before."""


@click.group()
def main() -> None:
    """Measure how long commands take to start."""


@main.command()
@click.argument("model", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--repeats", default=5)
def translate(model: Path, repeats: int) -> None:
    """A line translated by MODEL, whole commands in turns."""
    with _folder() as folder:
        commands: dict[str, Sequence[object]] = {
            "Python and `import torch`": [sys.executable, "-c", "import torch"]
        }
        for precision in ("fp32", "int8"):
            commands[f"`nmt translate --precision {precision}`"] = [
                *(*NMT, "translate", model, "--quiet", "--precision", precision)
            ]
        if importlib.util.find_spec("ctranslate2"):
            export = [*NMT, "export", model, "--format", "ctranslate2", "--out", folder / "exported"]
            subprocess.run(list(map(str, export)), check=True, stderr=subprocess.DEVNULL)
            for precision in ("float32", "int8"):
                commands[f"CTranslate2, {precision}"] = [
                    *(sys.executable, "-c", CTRANSLATE2, folder / "exported", precision)
                ]
        _print("a line", _measured(commands, repeats))


@main.command()
@click.option("--repeats", default=5)
def texts(repeats: int) -> None:
    """Ten lines, whole commands in turns."""
    with _folder() as folder:
        for name, lines in {"corpus.en": ENGLISH, "corpus.de": GERMAN}.items():
            (folder / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        german, dataset = folder / "corpus.de", folder / "dataset"
        preprocess = [
            *NMT,
            "preprocess",
            "--quiet",
            "--source-lang",
            "en",
            "--target-lang",
            "de",
            "--overwrite",
        ]
        preprocess += ["--train", str(folder / "corpus"), "--out", str(dataset)]
        commands: dict[str, Sequence[object]] = {
            "`nmt score`": [*NMT, "score", "--quiet", "--reference", german, german],
            "`nmt score --metric bleu`": [
                *NMT,
                "score",
                "--quiet",
                "--metric",
                "bleu",
                "--reference",
                german,
                german,
            ],
            "`sacrebleu -m bleu`": [
                sys.executable,
                "-m",
                "sacrebleu",
                "--quiet",
                german,
                "-i",
                german,
                "-m",
                "bleu",
            ],
            "`nmt preprocess`": [*preprocess, "--vocab-size", "38"],
            "`nmt preprocess --tokenizer bpe`": [*preprocess, "--tokenizer", "bpe", "--vocab-size", "60"],
        }
        _print("ten lines", _measured(commands, repeats))


@main.command()
@click.argument("model", type=click.Path(exists=True, file_okay=False, path_type=Path))
def loading(model: Path) -> None:
    """Memory for MODEL, a model folder; pages of its file count where they are mapped."""
    size = sum(file.stat().st_size for file in model.glob("*.safetensors")) / 1e6
    print(f"\n| weights of {size:.0f} MB | MB at most while loading | of the file | MB then | of the file |")
    print("|---|---|---|---|---|")
    for precision in ("fp32", "int8"):
        command = [sys.executable, "-c", LOADING, str(model), precision]
        told = subprocess.run(command, check=True, text=True, capture_output=True).stdout
        most, then = map(float, told.split())
        print(f"| {precision} | {most:.0f} | {most / size:.2f} x | {then:.0f} | {then / size:.2f} x |")


def _measured(commands: dict[str, Sequence[object]], repeats: int) -> dict[str, list[tuple[float, float]]]:
    """For each run of each command seconds of processors, with its own processes, and seconds."""
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in commands}
    for number in range(repeats + 1):
        for name, command in commands.items():
            before, start = os.times(), time.perf_counter()
            subprocess.run(
                list(map(str, command)),
                input=LINE,
                check=True,
                text=True,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            seconds, after = time.perf_counter() - start, os.times()
            spent = (
                after.children_user + after.children_system - before.children_user - before.children_system
            )
            if number:  # the first reads files that nobody had read, and compiles what nobody had compiled
                found[name].append((spent, seconds))
    return found


def _print(what: str, found: dict[str, list[tuple[float, float]]]) -> None:
    print(f"\n| {what} | processor seconds (median) | seconds (median) | seconds (least) |")
    print("|---|---|---|---|")
    for name, runs in found.items():
        spent, seconds = zip(*runs, strict=True)
        medians = f"{statistics.median(spent):.2f} | {statistics.median(seconds):.2f}"
        print(f"| {name} | {medians} | {min(seconds):.2f} |")


@contextmanager
def _folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="nmt-benchmark-") as name:
        yield Path(name)


if __name__ == "__main__":
    main()
