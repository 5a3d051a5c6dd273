"""Coverage-guided fuzzing of the readers of foreign files. Each must return a result or a plain error.

pip install atheris                                     for Python 3.11 to 3.13 on Linux; no dependency of nmt
python -m recipes.torture.fuzz json --seconds 120       one reader; failing inputs are stored in the folder
python -m recipes.torture.fuzz                          all of them, a minute each

A reader may raise `UserError`, or an `OSError` of the system; any other exception or a crash is a fault.
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


@click.command()
@click.argument("names", nargs=-1)
@click.option("--seconds", default=60, show_default=True, help="Seconds per reader.")
@click.option("--seed", default=1, show_default=True)
@click.option("--one", is_flag=True, hidden=True)
def main(names: tuple[str, ...], seconds: int, seed: int, one: bool) -> None:
    """Fuzz the named readers, or all. Exit with 1 if any fails."""
    if find_spec("atheris") is None:
        print("Nothing was fuzzed: atheris is not installed (pip install atheris).")
        return
    if one:
        fuzz(names[0], seconds, seed)
        return
    failed = []
    print("| reader | inputs | a second | lines reached | faults |\n|---|---|---|---|---|", flush=True)
    for name in names or READERS:
        command = [sys.executable, "-m", "recipes.torture.fuzz", name, "--one"]
        command += [f"--seconds={seconds}", f"--seed={seed}"]
        done = subprocess.run(command, capture_output=True, text=True, errors="replace")
        inputs, speed, reached = summary(done.stderr)
        print(f"| {name} | {inputs:,} | {speed:,} | {reached:,} | {int(done.returncode != 0)} |", flush=True)
        if done.returncode:
            failed.append(name)
            print(done.stderr[-3000:], file=sys.stderr)
    raise SystemExit(bool(failed))


def summary(output: str) -> tuple[int, int, int]:
    """Return the inputs, inputs per second and coverage in the final output of libFuzzer."""
    words = output.split()
    inputs, speed, reached = (
        next((int(words[at + 1]) for at in range(len(words) - 2, -1, -1) if words[at] == name), 0)
        for name in ("stat::number_of_executed_units:", "stat::average_exec_per_sec:", "cov:")
    )
    return inputs, speed, reached


def fuzz(name: str, seconds: int, seed: int) -> None:
    """Fuzz one reader in this process, which ends with it."""
    import atheris

    with atheris.instrument_imports(include=["nmt_cli"]):
        import nmt_cli.errors

        read, begin = READERS[name]()
    plain = nmt_cli.errors.UserError
    folder = Path(tempfile.mkdtemp(prefix="nmt-fuzz-"))
    seeds = folder / "seeds"
    seeds.mkdir()
    for number, content in enumerate(begin):
        (seeds / str(number)).write_bytes(content)
    path = folder / f"input{SUFFIXES.get(name, '')}"

    def once(content: bytes) -> None:
        path.write_bytes(content)
        try:
            read(path)
        except (plain, OSError):
            return

    options = [f"-max_total_time={seconds}", f"-seed={seed}", "-print_final_stats=1", "-rss_limit_mb=8000"]
    options += ["-timeout=20", "-max_len=20000", f"-artifact_prefix={os.getcwd()}/fuzz-{name}-"]  # noqa: PTH109
    atheris.Setup([name, *options, str(seeds)], once)
    atheris.Fuzz()


def settings() -> tuple[Reader, list[bytes]]:
    """Settings as TOML."""
    from nmt_cli.config import read
    from nmt_cli.training.config import TrainConfig

    return (lambda path: read(TrainConfig, path)), [(GOLDEN / "run" / "config.toml").read_bytes()]


def descriptions() -> tuple[Reader, list[bytes]]:
    """The manifest of a dataset."""
    from nmt_cli.data.dataset import read_manifest

    def read(path: Path) -> object:
        path.replace(path.with_name("dataset.json"))
        return read_manifest(path.parent)

    return read, [(GOLDEN / "dataset" / "dataset.json").read_bytes()]


def logs() -> tuple[Reader, list[bytes]]:
    """The log of a run."""
    from nmt_cli.training.tracking.history import History
    from nmt_cli.training.tracking.salvage import whole_lines

    lines = (GOLDEN / "run" / "log.jsonl").read_bytes().splitlines(keepends=True)
    return (lambda path: History().add(whole_lines(path.read_bytes())[0])), [lines[0], lines[-1]]


def yaml() -> tuple[Reader, list[bytes]]:
    """Marian's settings."""
    from nmt_cli.interop.importers.marian_yaml import settings as read

    seeds = [b"type: transformer\nenc-depth: 6\n", b'"a": [1, 2]\nb:\n  - c\n  - d: 3\n']
    return (lambda path: read(path.read_bytes().decode("utf-8", "replace"), str(path))), seeds


def npz() -> tuple[Reader, list[bytes]]:
    """Marian's weights."""
    import io

    import numpy

    from nmt_cli.interop.importers import marian

    arrays: dict[str, Any] = {"special:model.yml": numpy.frombuffer(b"type: x\0", numpy.int8)}
    numpy.savez(file := io.BytesIO(), **arrays)
    return (lambda path: marian._loaded(path)), [file.getvalue()]


def pickled() -> tuple[Reader, list[bytes]]:
    """PyTorch's files, of fairseq and Hugging Face."""
    import argparse
    import io

    import torch

    from nmt_cli.interop.importers.pickled import read_pickled

    seeds = []
    for zipped in (True, False):
        content = {"args": argparse.Namespace(a=1), "model": {"w": torch.ones(2)}}
        torch.save(content, file := io.BytesIO(), _use_new_zipfile_serialization=zipped)
        seeds.append(file.getvalue())
    return read_pickled, seeds


def safetensors() -> tuple[Reader, list[bytes]]:
    """The header of weights, and the weights."""
    import torch
    from safetensors.torch import save

    from nmt_cli.checkpoints.files import read_tensors, tensor_shapes

    return (lambda path: (tensor_shapes(path), read_tensors(path))), [save({"w": torch.ones(2, 3)})]


def test_sets() -> tuple[Reader, list[bytes]]:
    """WMT's .sgm."""
    from nmt_cli.corpus.sgm import segments

    text = b'<srcset setid="t"><doc docid="d"><seg id="1">a &amp; b</seg>\n<seg id=2>c</seg></doc></srcset>'
    return (lambda path: segments(path, "source")), [text]


def subwords() -> tuple[Reader, list[bytes]]:
    """A model of SentencePiece, its normalisation among it."""
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
SUFFIXES = {
    "sgm": ".sgm",
    "npz": ".npz",
    "safetensors": ".safetensors",
    "settings": ".toml",
}


if __name__ == "__main__":
    main()
