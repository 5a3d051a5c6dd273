"""Translators, each in its own process that waits for requests, and the same weights in their forms."""

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

from nmt_cli.checkpoints.model_folder import LoadedModel, read_model
from nmt_cli.cli.main import WAITING
from nmt_cli.interop.ctranslate2 import filled
from nmt_cli.model.transformer import Transformer
from recipes.benchmarks import translation_peers as peers
from recipes.benchmarks.machine import ROOT, THREADS
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


@dataclass(frozen=True)
class Run:
    """The translation of a text, and its measurements."""

    seconds: float
    targets: Ids
    peak_bytes: int = 0
    core_seconds: float = 0.0
    product_rate: float = 0.0
    others: float = 0.0
    """Share of the cores that other processes used."""


class Process:
    """A running translator."""

    def __init__(self, contestant: Contestant, folder: Path, workers: int) -> None:
        began = time.perf_counter()
        command = [sys.executable, "-P", peers.__file__, contestant.kind, str(folder), str(workers)]
        environment = os.environ | contestant.environment | {"PYTHONPATH": str(ROOT)}
        with (folder / f"{contestant.kind}.log").open("w") as log:
            pipes: dict[str, Any] = {"stdin": PIPE, "stdout": PIPE, "stderr": log, "text": True}
            self._process = subprocess.Popen(command, env=environment, start_new_session=True, **pipes)
        self._name, self._log = contestant.name, Path(log.name)
        self.load_seconds: float = self._answer()["load_seconds"]
        self.start_seconds = time.perf_counter() - began

    @property
    def session(self) -> int:
        """Return the Unix session of all its processes."""
        return self._process.pid

    def ask(self, sources: Ids, batch: int, beam: int = BEAM) -> Run:
        """Return the translations of `sources` and the time, and wait for both."""
        assert self._process.stdin
        self._process.stdin.write(json.dumps({"sources": sources, "batch": batch, "beam": beam}) + "\n")
        self._process.stdin.flush()
        return Run(**self._answer())

    def stop(self) -> None:
        """Close the input, and wait until the process ends."""
        self._process.communicate()

    def _answer(self) -> Any:
        assert self._process.stdout
        line = self._process.stdout.readline()
        if not line:
            raise click.ClickException(f"{self._name} ended: {self._log.read_text().strip()[-500:]}")
        return json.loads(line)


def prepare(source: Path, folder: Path) -> LoadedModel:
    """Return a copy of the model in `folder`, and write its weights there for all translators."""
    shutil.copytree(source, folder / peers.MODEL, ignore=shutil.ignore_patterns("optimizer*", "state.json"))
    model = read_model(folder / peers.MODEL)
    for kind in peers.CTRANSLATE2:
        export_ctranslate2(model.transformer, kind, folder)
    return model


def contestants() -> list[Contestant]:
    """Return our translators and CTranslate2's."""
    kinds = OURS | {"nmt fp32, own rule": "fp32" + peers.OWN_RULE}
    ours = {1: 1, THREADS: THREADS}
    listed = [Contestant(name, kind, (THREADS,), ours, WAITING) for name, kind in kinds.items()]
    theirs = {1: THREADS, THREADS: 1}
    listed += [
        Contestant("CTranslate2 fp32", "ctranslate2-float32", (1, THREADS), theirs),
        Contestant("CTranslate2 int8", "ctranslate2-int8", (1, THREADS), theirs),
    ]
    return listed


@contextmanager
def started(contestant: Contestant, folder: Path, workers: int) -> Iterator[Process]:
    """Start a translator, and stop it at the end."""
    process = Process(contestant, folder, workers)
    try:
        yield process
    finally:
        process.stop()


def export_ctranslate2(model: Transformer, kind: str, folder: Path) -> None:
    """Write a CTranslate2 model into `folder`, whose vocabulary entries are the ids in digits."""
    spec = filled(model)
    pieces = list(map(str, range(len(model.target_vocabulary))))
    spec.register_source_vocabulary(pieces)
    spec.register_target_vocabulary(pieces)
    spec.config.unk_token = pieces[peers.BANNED]
    spec.config.bos_token = spec.config.eos_token = spec.config.decoder_start_token = pieces[peers.END]
    spec.validate()
    spec.optimize(quantization=kind.rpartition("-")[2])
    (folder / kind).mkdir()
    spec.save(str(folder / kind))
