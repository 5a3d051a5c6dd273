"""Who translates, each in a process of its own that has loaded and waits."""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

import click
import torch

from nmt_cli.checkpoints.model_folder import Model, read_model
from nmt_cli.cli.main import WAITING
from recipes.benchmarks import train as machine
from recipes.benchmarks import translation_peers as peers
from recipes.benchmarks.training_peers import ROOT, STUBS
from recipes.benchmarks.translation_export import export
from recipes.benchmarks.translation_peers import BEAM, Ids

THREADS = 2
BATCHES = (32, 64, 128)

OURS = {"nmt fp32": "fp32", "nmt int8": "int8"}


@dataclass(frozen=True)
class Contestant:
    """Who translates in a process of its own."""

    name: str
    kind: str
    workers: Sequence[int] = (1,)
    """What it may share the threads out among."""

    lone: Mapping[int, int] = field(default_factory=dict)
    """How many workers there are where a line that comes alone may have so many threads."""

    environment: Mapping[str, str] = field(default_factory=dict)
    batches: Sequence[int] = BATCHES
    """What it tries."""

    python: Path = Path(sys.executable)
    python_path: Path = ROOT


@dataclass(frozen=True)
class Run:
    """A text, translated."""

    seconds: float
    targets: Ids
    steps: int
    rows: int
    peak_bytes: int = 0
    core_seconds: float = 0.0
    product_rate: float = 0.0
    others: float = 0.0
    """Share of the cores that other processes took."""


class Process:
    """A contestant that has loaded, and waits."""

    def __init__(self, contestant: Contestant, folder: Path, workers: int) -> None:
        began = time.perf_counter()
        command = [str(contestant.python), "-P", peers.__file__, contestant.kind, str(folder), str(workers)]
        environment = os.environ | contestant.environment | {"PYTHONPATH": str(contestant.python_path)}
        with (folder / f"{contestant.kind}.log").open("w") as log:
            self._process = subprocess.Popen(
                command,
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )
        self._name, self._log = contestant.name, Path(log.name)
        self.load_seconds: float = self._answer()["load_seconds"]
        self.start_seconds = time.perf_counter() - began

    @property
    def session(self) -> int:
        """All its processes have this."""
        return self._process.pid

    def ask(self, sources: Ids, batch: int, beam: int = BEAM) -> Run:
        """Let it translate."""
        assert self._process.stdin
        self._process.stdin.write(json.dumps({"sources": sources, "batch": batch, "beam": beam}) + "\n")
        self._process.stdin.flush()
        return Run(**self._answer())

    def stop(self) -> None:
        """Nothing more is asked."""
        self._process.communicate()

    def _answer(self) -> Any:
        assert self._process.stdout
        line = self._process.stdout.readline()
        if not line:
            raise click.ClickException(f"{self._name} ended: {self._log.read_text().strip()[-500:]}")
        return json.loads(line)


def begin(name: str) -> None:
    """Take the threads that all have, and say what is measured by the benchmark of this name, and where."""
    if "NMT_DATA" not in os.environ:
        raise click.ClickException(
            "set NMT_DATA to a folder that holds multi30k/test_2016_flickr.en and so on."
        )
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:THREADS])
    torch.set_num_threads(THREADS)
    os.environ |= {"OMP_NUM_THREADS": str(THREADS)}
    print(f"{date.today()}, {machine._processor()}, {THREADS} threads, torch {torch.__version__}")
    asked = " ".join(machine._anonymous(sys.argv[1:]))
    print(f"`python -m recipes.benchmarks.{name} {asked}`\n", flush=True)


def prepare(place: Path, folder: Path) -> Model:
    """Read the model, and give it to everybody; a run that goes on may remove it meanwhile."""
    shutil.copytree(place, folder / peers.MODEL, ignore=shutil.ignore_patterns("optimizer*", "state.json"))
    model = read_model(folder / peers.MODEL)
    export(model.transformer, folder)
    for name, content in STUBS["fairseq"].items():
        (folder / name).write_text(content)
    return model


def contestants(folder: Path, fairseq: Path | None = None, transformers: bool = False) -> list[Contestant]:
    """All that are asked for, and CTranslate2."""
    kinds = OURS | {"nmt fp32, own rule": "fp32" + peers.OWN_RULE}
    ours = {1: 1, THREADS: THREADS}
    listed = [Contestant(name, kind, (THREADS,), ours, WAITING) for name, kind in kinds.items()]
    theirs = {1: THREADS, THREADS: 1}
    listed += [
        Contestant("CTranslate2 fp32", "ctranslate2-float32", (1, THREADS), theirs),
        Contestant("CTranslate2 int8", "ctranslate2-int8", (1, THREADS), theirs),
    ]
    if transformers:
        # It is slow: more trials would take longer than all else.
        listed.append(Contestant("transformers Marian", peers.MARIAN, batches=(64,)))
    if fairseq:
        listed.append(Contestant("fairseq", peers.FAIRSEQ, python=fairseq / "python", python_path=folder))
    return listed


@contextmanager
def started(contestant: Contestant, folder: Path, workers: int) -> Iterator[Process]:
    """A process of it."""
    process = Process(contestant, folder, workers)
    try:
        yield process
    finally:
        process.stop()
