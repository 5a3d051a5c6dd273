"""Run `nmt` in forks of a process that has loaded it, so that a fault costs one second, and compare runs."""

import json
import multiprocessing
import os
import signal
import socket
import sys
import tempfile
from collections.abc import Mapping, Sequence
from multiprocessing import forkserver
from pathlib import Path
from typing import Any

TIMES = ("tokens_per_second", "waiting")
"""Log fields that differ between all runs."""

FILE_EVENTS = ("open", "os.rename", "os.remove", "os.mkdir", "os.symlink", "shutil.rmtree")

PATIENCE = 300.0
"""Seconds after which a process counts as hung."""

FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(
    [
        *("nmt_cli.api", "nmt_cli.cli.main", "nmt_cli.cli.reports.train_live", "nmt_cli.training.setup.run"),
        *("torch._dynamo", "sacrebleu.tokenizers.tokenizer_13a", "numba"),  # loaded later, and slow to load
    ]
)


FEW_THREADS = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}
"""Settings of OpenMP, before it is loaded. Busy waiting would dominate short commands."""


def load() -> None:
    """Start the process that is forked. It lasts as long as this one."""
    before = dict(os.environ)
    os.environ |= FEW_THREADS
    try:
        forkserver.ensure_running()
    finally:
        os.environ.clear()
        os.environ |= before


class Nmt:
    """A running `nmt` command."""

    def __init__(
        self, words: Sequence[object], environment: Mapping[str, str] | None = None, dies_at: int = 0
    ) -> None:
        """Start `nmt` with `words`. It kills itself just before its file event number `dies_at`, counted
        from 1."""
        descriptor, self._errors = tempfile.mkstemp()
        os.close(descriptor)
        arguments = (list(map(str, words)), self._errors, dict(environment or {}), dies_at)
        self._process = FORKS.Process(target=_become_nmt, args=arguments, daemon=True)
        self._process.start()

    def send(self, number: int) -> None:
        """Send a signal if the process still runs."""
        if self._process.is_alive() and self._process.pid:
            os.kill(self._process.pid, number)

    def wait(self, seconds: float) -> None:
        """Wait until the process has ended, for at most `seconds`."""
        self._process.join(seconds)

    def end(self, patience: float = PATIENCE) -> tuple[int | None, str]:
        """Return the exit code and stderr. The code is None if the process hung and was killed."""
        self._process.join(patience)
        code = self._process.exitcode
        if code is None:
            self._process.kill()
            self._process.join()
        said = Path(self._errors).read_text(encoding="utf-8", errors="replace")
        Path(self._errors).unlink()
        return code, said


def _become_nmt(words: list[str], errors: str, environment: dict[str, str], dies_at: int) -> None:
    os.environ.update(environment)
    os.dup2(os.open(errors, os.O_WRONLY | os.O_APPEND), 2)
    sys.stderr = open(2, "w", buffering=1, errors="backslashreplace", closefd=False)  # noqa: SIM115
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.argv = ["nmt", *words]
    if dies_at:
        _die_at(dies_at, words[words.index("--out") + 1])
    from nmt_cli.cli.main import main

    main()


def _die_at(number: int, path: str) -> None:
    """Kill this process at its file event `number` below `path`."""
    remaining = [number]

    def count(event: str, arguments: tuple[Any, ...]) -> None:
        if event in FILE_EVENTS and str(arguments[0]).startswith(path):
            remaining[0] -= 1
            if not remaining[0]:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(count)


def rank_environments(world: int) -> list[dict[str, str]]:
    """Return the environment variables of each of `world` ranks on this machine."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    shared |= {"WORLD_SIZE": str(world), "LOCAL_WORLD_SIZE": str(world)}
    return [{**shared, "RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(world)]


def result_of(run: Path) -> dict[str, Any]:
    """Return the results of a run, except its times."""
    newest = max((run / "checkpoints").glob("step-*"))
    state = json.loads((newest / "state.json").read_bytes())
    return {
        "step": newest.name,
        "weights": (newest / "model.safetensors").read_bytes(),
        "optimizer": (newest / "optimizer.safetensors").read_bytes(),
        "scores": state["scores"],
        "position": (state["epoch"], state["batch"]),
        "log": _timeless(run / "log.jsonl"),
    }


def _timeless(log: Path) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in log.read_bytes().splitlines()]
    return [{key: value for key, value in line.items() if key not in TIMES} for line in lines]


def differing(run: Path, whole: Mapping[str, Any]) -> list[str]:
    """Return the names of the results that differ from those of `whole`."""
    result = result_of(run)
    return [name for name, value in whole.items() if result[name] != value]


def refused_plainly(code: int | None, said: str) -> bool:
    """Return whether a command ended with one line of error that a user can act on. Warnings may precede
    it."""
    told = [line for line in said.splitlines() if line.startswith(("Error: ", "Traceback"))]
    return code == 1 and len(told) == 1 and told[0].startswith("Error: ") and "bug in nmt" not in said
