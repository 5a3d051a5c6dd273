"""Run `nmt` in forks of this process, which has loaded all modules: hundreds of commands per minute."""

import fcntl
import multiprocessing
import os
import resource
import select
import signal
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import resource_tracker
from pathlib import Path
from typing import NoReturn

from tests import fork_server

MEMORY_LIMIT = {resource.RLIMIT_AS: 24 << 30}
"""Maximum address space in bytes."""

STDERR_BYTES = 1 << 20
"""Capacity of stderr. A command that writes more blocks until its time is over."""

NOBODY = 65534
"""Number of the user without permissions."""

FEW_THREADS = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}
"""Settings of OpenMP, before it is loaded. Busy waiting would dominate short commands."""

LAZY_MODULES = (
    *("torch.utils._device", "numpy.ma", "numpy.ctypeslib", "encodings.utf_8_sig"),
    "torch.profiler._cupti_monitor",
)
"""Modules that `nmt_cli` loads at first use, besides those of `tests.fork_server`."""


@dataclass(frozen=True, slots=True)
class Completed:
    """A command that has ended."""

    code: int | None
    """The exit code. None if the command hung and was killed. Negative if a signal ended it."""

    out: bytes
    """The bytes on stdout."""

    errors: str
    """The text on stderr."""


def load() -> None:
    """Import all modules that `nmt` uses, so that forks need not. Start no thread."""
    os.environ |= FEW_THREADS
    fork_server.load(LAZY_MODULES)
    resource_tracker.ensure_running()  # otherwise every process with children would start one


def run(
    arguments: list[str],
    folder: Path,
    seconds: float,
    limits: Mapping[int, int] = MEMORY_LIMIT,
    as_nobody: bool = False,
) -> Completed:
    """Run `nmt` with `arguments` in a fork, and return the end. Kill the fork after `seconds`. `folder` is
    the working folder, and gets a file `stdout`. `limits` are resource limits of the fork. With `as_nobody`,
    a fork of root runs as a user who may not write everywhere."""
    sys.stdout.flush()
    errors, stderr = os.pipe()  # a file could not grow on a full disk either
    fcntl.fcntl(stderr, fcntl.F_SETPIPE_SZ, STDERR_BYTES)
    pid = os.fork()
    if not pid:
        os.dup2(stderr, 2)
        _run_nmt(arguments, folder, limits, as_nobody)
    os.close(stderr)
    descriptor = os.pidfd_open(pid)
    in_time = bool(select.select([descriptor], [], [], seconds)[0])
    os.close(descriptor)
    if not in_time:
        os.killpg(pid, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    os.set_blocking(errors, False)
    with os.fdopen(errors, "rb") as stream:
        text = (stream.read() or b"").decode(errors="backslashreplace")
    return Completed(code if in_time else None, (folder / "stdout").read_bytes(), text)


def succeed(arguments: list[str], folder: Path) -> Completed:
    """Run `nmt` in `folder` for at most a minute, and return the end. Raise RuntimeError if `nmt` fails."""
    completed = run(arguments, folder, 60)
    if completed.code != 0:
        raise RuntimeError(f"nmt {arguments} ended with {completed.code}: {completed.errors}")
    return completed


def _run_nmt(arguments: list[str], folder: Path, limits: Mapping[int, int], as_nobody: bool) -> NoReturn:
    """Run `nmt` in this fork, then end the process with the exit code of the command."""
    from nmt_cli.cli.main import main

    # A fork has loaded the modules of nmt's children, which take most of the time of a command.
    context = multiprocessing.get_context("fork")
    vars(multiprocessing).update(get_context=lambda _: context)
    code = 120
    try:
        os.setsid()
        os.chdir(folder)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(os.open("stdout", os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 1)
        sys.stdout, sys.stderr = (
            os.fdopen(number, "w", buffering=1, errors="backslashreplace") for number in (1, 2)
        )
        for resource_kind, limit in limits.items():
            resource.setrlimit(resource_kind, (limit, limit))
        if as_nobody and not os.geteuid():
            os.setuid(NOBODY)
        sys.argv = ["nmt", *arguments]
        main()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 121
    finally:
        with suppress(OSError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)
