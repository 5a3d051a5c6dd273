"""Run `nmt` in forks of a server process that has loaded all modules, and compare training runs."""

import itertools
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

from recipes.torture.forks import FEW_THREADS

TIMES = ("tokens_per_second", "waiting")
"""Log fields with times, which differ between any two runs."""

FILE_EVENTS = ("open", "os.rename", "os.remove", "os.mkdir", "os.symlink", "shutil.rmtree")
"""Audit events of Python at which a process can be killed."""

PATIENCE = 300.0
"""Seconds after which a process counts as hung."""

FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(
    [
        *(
            "nmt_cli.api",
            "nmt_cli.cli.main",
            "nmt_cli.cli.reports.training_output",
            "nmt_cli.training.setup.start",
        ),
        *("torch._dynamo", "sacrebleu.tokenizers.tokenizer_13a", "numba"),  # loaded later, and slow to load
    ]
)


def load() -> None:
    """Start the fork server with few threads. The server runs until this process ends."""
    environment = dict(os.environ)
    os.environ |= FEW_THREADS
    try:
        forkserver.ensure_running()
    finally:
        os.environ.clear()
        os.environ |= environment


class Nmt:
    """A running `nmt` command."""

    def __init__(
        self, arguments: Sequence[object], environment: Mapping[str, str] | None = None, dies_at: int = 0
    ) -> None:
        """Start `nmt` with these arguments and additional environment variables. With `dies_at`, the process
        kills itself just before that file event in `--out`. Events are counted from 1."""
        descriptor, self._errors = tempfile.mkstemp()
        os.close(descriptor)
        parameters = (list(map(str, arguments)), self._errors, dict(environment or {}), dies_at)
        self._process = FORKS.Process(target=_run_nmt, args=parameters, daemon=True)
        self._process.start()

    def send(self, number: int) -> None:
        """Send the signal `number`. Do nothing if the process has ended."""
        if self._process.is_alive() and self._process.pid:
            os.kill(self._process.pid, number)

    def wait(self, seconds: float) -> None:
        """Wait until the process has ended, for at most `seconds`."""
        self._process.join(seconds)

    def end(self) -> tuple[int | None, str]:
        """Wait for the end. Return the exit code and stderr. The code is None if the process hung."""
        self._process.join(PATIENCE)
        code = self._process.exitcode
        if code is None:
            self._process.kill()
            self._process.join()
        stderr = Path(self._errors).read_text(encoding="utf-8", errors="replace")
        Path(self._errors).unlink()
        return code, stderr


def _run_nmt(arguments: list[str], errors: str, environment: dict[str, str], dies_at: int) -> None:
    """Run `nmt` in this process, with stderr in the file `errors`."""
    os.environ.update(environment)
    os.dup2(os.open(errors, os.O_WRONLY | os.O_APPEND), 2)
    sys.stderr = open(2, "w", buffering=1, errors="backslashreplace", closefd=False)  # noqa: SIM115
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.argv = ["nmt", *arguments]
    if dies_at:
        _die_at(dies_at, arguments[arguments.index("--out") + 1])
    from nmt_cli.cli.main import main

    main()


def _die_at(number: int, path: str) -> None:
    """Kill this process just before its file event `number` below `path`."""
    numbers = itertools.count(1)

    def count(event: str, arguments: tuple[Any, ...]) -> None:
        """Kill this process if the event has the number."""
        if event in FILE_EVENTS and str(arguments[0]).startswith(path) and next(numbers) == number:
            os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(count)


def rank_environments(world: int) -> list[dict[str, str]]:
    """Return the environment variables of `world` ranks on this machine, in order of rank."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    shared |= {"WORLD_SIZE": str(world), "LOCAL_WORLD_SIZE": str(world)}
    return [{**shared, "RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(world)]


def result_of(run: Path) -> dict[str, Any]:
    """Return the newest checkpoint and the log of a run, without times."""
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
    """Return the entries of a log without times."""
    lines = [json.loads(line) for line in log.read_bytes().splitlines()]
    return [{key: value for key, value in line.items() if key not in TIMES} for line in lines]


def differing(run: Path, expected: Mapping[str, Any]) -> list[str]:
    """Return the names in `expected`, a value of `result_of`, whose values differ from those of `run`."""
    result = result_of(run)
    return [name for name, value in expected.items() if result[name] != value]


def refused_plainly(code: int | None, stderr: str) -> bool:
    """Return whether a command ended with code 1 and one line of error that a user can act on. Warnings may
    precede the error."""
    errors = [line for line in stderr.splitlines() if line.startswith(("Error: ", "Traceback"))]
    return code == 1 and len(errors) == 1 and errors[0].startswith("Error: ") and "bug in nmt" not in stderr
