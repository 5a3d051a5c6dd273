"""Translators, each in its own process, which loads once and then waits for requests."""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from subprocess import PIPE
from typing import Any

import click

from nmt_cli.checkpoints.model_folder import Model, read_model
from nmt_cli.cli.main import WAITING
from recipes.benchmarks import translation_peers as peers
from recipes.benchmarks.machine import ROOT, THREADS
from recipes.benchmarks.training_peers import STUBS
from recipes.benchmarks.translation_export import export
from recipes.benchmarks.translation_peers import BEAM, Ids

BATCHES = (32, 64, 128)

OURS = {"nmt fp32": "fp32", "nmt int8": "int8"}


@dataclass(frozen=True)
class Contestant:
    """A translator. The trial takes the fastest of its numbers of workers and batch sizes."""

    name: str
    kind: str
    workers: Sequence[int] = (1,)
    lone: Mapping[int, int] = field(default_factory=dict)
    """Number of threads for a single line, to number of workers."""

    environment: Mapping[str, str] = field(default_factory=dict)
    batches: Sequence[int] = BATCHES

    python: Path = Path(sys.executable)
    python_path: Path = ROOT


@dataclass(frozen=True)
class Run:
    """The translation of a text, and its measurements."""

    seconds: float
    targets: Ids
    steps: int
    rows: int
    peak_bytes: int = 0
    core_seconds: float = 0.0
    product_rate: float = 0.0
    others: float = 0.0
    """Share of the cores that other processes used."""


class Process:
    """A running translator."""

    def __init__(self, contestant: Contestant, folder: Path, workers: int) -> None:
        began = time.perf_counter()
        command = [str(contestant.python), "-P", peers.__file__, contestant.kind, str(folder), str(workers)]
        environment = os.environ | contestant.environment | {"PYTHONPATH": str(contestant.python_path)}
        with (folder / f"{contestant.kind}.log").open("w") as log:
            self._process = subprocess.Popen(
                *(command,),
                stdin=PIPE,
                stdout=PIPE,
                env=environment,
                stderr=log,
                text=True,
                start_new_session=True,
            )
        self._name, self._log = contestant.name, Path(log.name)
        self.load_seconds: float = self._answer()["load_seconds"]
        self.start_seconds = time.perf_counter() - began

    @property
    def session(self) -> int:
        """The session of all its processes."""
        return self._process.pid

    def ask(self, sources: Ids, batch: int, beam: int = BEAM) -> Run:
        """Translate the sources."""
        assert self._process.stdin
        self._process.stdin.write(json.dumps({"sources": sources, "batch": batch, "beam": beam}) + "\n")
        self._process.stdin.flush()
        return Run(**self._answer())

    def stop(self) -> None:
        """Let the process end."""
        self._process.communicate()

    def _answer(self) -> Any:
        assert self._process.stdout
        line = self._process.stdout.readline()
        if not line:
            raise click.ClickException(f"{self._name} ended: {self._log.read_text().strip()[-500:]}")
        return json.loads(line)


def prepare(source: Path, folder: Path) -> Model:
    """Copy the model, since a running training may remove it, and write it for all translators."""
    shutil.copytree(source, folder / peers.MODEL, ignore=shutil.ignore_patterns("optimizer*", "state.json"))
    model = read_model(folder / peers.MODEL)
    export(model.transformer, folder)
    for name, content in STUBS["fairseq"].items():
        (folder / name).write_text(content)
    return model


def contestants(folder: Path, fairseq: Path | None = None, transformers: bool = False) -> list[Contestant]:
    """Return ours, CTranslate2 and the requested others."""
    kinds = OURS | {"nmt fp32, own rule": "fp32" + peers.OWN_RULE}
    ours = {1: 1, THREADS: THREADS}
    listed = [Contestant(name, kind, (THREADS,), ours, WAITING) for name, kind in kinds.items()]
    theirs = {1: THREADS, THREADS: 1}
    listed += [
        Contestant("CTranslate2 fp32", "ctranslate2-float32", (1, THREADS), theirs),
        Contestant("CTranslate2 int8", "ctranslate2-int8", (1, THREADS), theirs),
    ]
    if transformers:
        # It is slow. More trials would take longer than everything else.
        listed.append(Contestant("transformers Marian", peers.MARIAN, batches=(64,)))
    if fairseq:
        listed.append(Contestant("fairseq", peers.FAIRSEQ, python=fairseq / "python", python_path=folder))
    return listed


@contextmanager
def started(contestant: Contestant, folder: Path, workers: int) -> Iterator[Process]:
    """Start a translator, and stop it at the end."""
    process = Process(contestant, folder, workers)
    try:
        yield process
    finally:
        process.stop()
