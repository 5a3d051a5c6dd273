"""Coverage-guided fuzzing of the readers of foreign files. Each must return a result or a plain error.

python -m recipes.torture.fuzz json --seconds 120       one reader; failing inputs go to the working folder
python -m recipes.torture.fuzz                          all readers, a minute each

atheris, which chooses the inputs, has wheels for Linux on x86-64 only.

A reader may raise `UserError`, or an `OSError` of the system. Any other exception or a crash is a fault.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click

from recipes.torture.cases import GOLDEN

Reader = Callable[[Path], object]
"""Reads the file at a path."""


@click.command()
@click.argument("names", nargs=-1)
@click.option("--seconds", default=60, show_default=True, help="Seconds per reader.")
@click.option("--seed", default=1, show_default=True)
@click.option("--in-this-process", is_flag=True, hidden=True)
def main(names: tuple[str, ...], seconds: int, seed: int, in_this_process: bool) -> None:
    """Fuzz the named readers, or all without names. Exit with 1 if any reader fails or gets no input."""
    if find_spec("atheris") is None:
        raise SystemExit("Nothing was fuzzed: atheris is not installed (pip install atheris).")
    if in_this_process:
        fuzz(names[0], seconds, seed)
        return
    failed = []
    print(
        "| reader | inputs | inputs per second | lines reached | faults |\n|---|---|---|---|---|", flush=True
    )
    for name in names or READERS:
        command = [sys.executable, "-m", "recipes.torture.fuzz", name, "--in-this-process"]
        command += [f"--seconds={seconds}", f"--seed={seed}"]
        done = subprocess.run(command, capture_output=True, text=True, errors="replace")
        inputs, speed, reached = summary(done.stderr)
        print(f"| {name} | {inputs:,} | {speed:,} | {reached:,} | {int(done.returncode != 0)} |", flush=True)
        if done.returncode or not inputs:
            failed.append(name)
            print(done.stderr[-3000:], file=sys.stderr)
    raise SystemExit(bool(failed))


def summary(output: str) -> tuple[int, int, int]:
    """Return inputs, inputs per second and coverage from the output of libFuzzer, or 0 if one is missing."""
    words = output.split()
    inputs, speed, reached = (
        next((int(words[i + 1]) for i in range(len(words) - 2, -1, -1) if words[i] == name), 0)
        for name in ("stat::number_of_executed_units:", "stat::average_exec_per_sec:", "cov:")
    )
    return inputs, speed, reached


def fuzz(name: str, seconds: int, seed: int) -> None:
    """Fuzz the reader `name` for `seconds`. Do not return, since atheris ends this process."""
    import atheris

    with atheris.instrument_imports(include=["nmt_cli"]):
        import nmt_cli.errors

        read, contents = READERS[name]()
    folder = Path(tempfile.mkdtemp(prefix="nmt-fuzz-"))
    seeds = folder / "seeds"
    seeds.mkdir()
    for number, content in enumerate(contents):
        (seeds / str(number)).write_bytes(content)
    path = folder / f"input{SUFFIXES.get(name, '')}"

    def once(content: bytes) -> None:
        path.write_bytes(content)
        try:
            read(path)
        except (nmt_cli.errors.UserError, OSError):
            return

    options = [f"-max_total_time={seconds}", f"-seed={seed}", "-print_final_stats=1", "-rss_limit_mb=8000"]
    options += ["-timeout=20", "-max_len=20000", f"-artifact_prefix={os.getcwd()}/fuzz-{name}-"]  # noqa: PTH109
    atheris.Setup([name, *options, str(seeds)], once)
    atheris.Fuzz()


def settings() -> tuple[Reader, list[bytes]]:
    """Return the reader of settings in TOML, and contents to start from."""
    from nmt_cli.config import read
    from nmt_cli.training.config import TrainConfig

    return (lambda path: read(TrainConfig, path)), [(GOLDEN / "run" / "config.toml").read_bytes()]


def descriptions() -> tuple[Reader, list[bytes]]:
    """Return the reader of a dataset's manifest, and contents to start from."""
    from nmt_cli.data.dataset import read_manifest

    def read(path: Path) -> object:
        path.replace(path.with_name("dataset.json"))
        return read_manifest(path.parent)

    return read, [(GOLDEN / "dataset" / "dataset.json").read_bytes()]


def logs() -> tuple[Reader, list[bytes]]:
    """Return the reader of a run's log, and contents to start from."""
    from nmt_cli.training.tracking.log import read_history

    lines = (GOLDEN / "run" / "log.jsonl").read_bytes().splitlines(keepends=True)
    return read_history, [lines[0], lines[-1]]


def yaml() -> tuple[Reader, list[bytes]]:
    """Return the reader of Marian's settings, and contents to start from."""
    from nmt_cli.interop.marian_yaml import settings as read

    seeds = [b"type: transformer\nenc-depth: 6\n", b'"a": [1, 2]\nb:\n  - c\n  - d: 3\n']
    return (lambda path: read(path.read_bytes().decode("utf-8", "replace"), str(path))), seeds


def npz() -> tuple[Reader, list[bytes]]:
    """Return the reader of Marian's weights, and contents to start from."""
    import io

    import numpy

    from nmt_cli.interop import marian

    arrays: dict[str, Any] = {"special:model.yml": numpy.frombuffer(b"type: x\0", numpy.int8)}
    numpy.savez(file := io.BytesIO(), **arrays)
    return (lambda path: marian._loaded(path)), [file.getvalue()]


def pickled() -> tuple[Reader, list[bytes]]:
    """Return the reader of PyTorch's pickled files, and contents to start from."""
    import argparse
    import io

    import torch

    from nmt_cli.runtime.pickled import read_pickled

    seeds = []
    for zipped in (True, False):
        content = {"args": argparse.Namespace(a=1), "model": {"w": torch.ones(2)}}
        torch.save(content, file := io.BytesIO(), _use_new_zipfile_serialization=zipped)
        seeds.append(file.getvalue())
    return read_pickled, seeds


def safetensors() -> tuple[Reader, list[bytes]]:
    """Return the reader of safetensors files, and contents to start from."""
    import torch
    from safetensors.torch import save

    from nmt_cli.checkpoints.verified_files import read_tensors, tensor_shapes

    return (lambda path: (tensor_shapes(path), read_tensors(path))), [save({"w": torch.ones(2, 3)})]


def test_sets() -> tuple[Reader, list[bytes]]:
    """Return the reader of WMT's .sgm files, and contents to start from."""
    from nmt_cli.corpus.sgm import segments

    text = b'<srcset setid="t"><doc docid="d"><seg id="1">a &amp; b</seg>\n<seg id=2>c</seg></doc></srcset>'
    return (lambda path: segments(path, "source")), [text]


def subwords() -> tuple[Reader, list[bytes]]:
    """Return the reader of SentencePiece models, which also encodes a text, and contents to start from."""
    import io

    import sentencepiece

    from nmt_cli.text.subword_models.pieces import Pieces

    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(["a b c ab bc", "abc cab"]),
        model_writer=(file := io.BytesIO()),
        vocab_size=12,
        hard_vocab_limit=False,
        minloglevel=3,
    )
    return (lambda path: Pieces(path.read_bytes()).encode("a bc d")), [file.getvalue()]


READERS: dict[str, Callable[[], tuple[Any, list[bytes]]]] = {
    "settings": settings,
    "json": descriptions,
    "log": logs,
    "yaml": yaml,
    "npz": npz,
    "pickled": pickled,
    "safetensors": safetensors,
    "sgm": test_sets,
    "subwords": subwords,
}
"""Functions that return a reader and the contents from which fuzzing starts, by the name of the reader."""

SUFFIXES = {
    "sgm": ".sgm",
    "npz": ".npz",
    "safetensors": ".safetensors",
    "settings": ".toml",
}


if __name__ == "__main__":
    main()
