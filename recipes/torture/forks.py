"""Run `nmt` in forks of this process, which has loaded all modules: hundreds of commands per minute."""

import fcntl
import gc
import importlib
import multiprocessing
import os
import pkgutil
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

MOST_MEMORY = {resource.RLIMIT_AS: 24 << 30}
"""Maximum address space in bytes."""

MOST_ERRORS = 1 << 20
"""Maximum bytes on stderr. A command that writes more blocks forever."""

NOBODY = 65534
FEW_THREADS = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}
"""Settings of OpenMP, before it is loaded. Busy waiting would dominate short commands."""

NEEDED_LATER = (
    *("torch._dynamo", "torch.utils._device", "numpy.ma", "concurrent.futures.thread", "sacremoses"),
    *("sacrebleu.tokenizers.tokenizer_13a", "rich.live", "rich.table"),
    *("encodings.utf_8_sig", "numpy.ctypeslib", "torch.profiler._cupti_monitor"),
)
"""Modules that `nmt_cli` loads only when they are needed."""


@dataclass(frozen=True, slots=True)
class Ended:
    """The end of a command."""

    code: int | None
    """None if the command hung and was killed. Negative if a signal ended it."""

    out: bytes
    errors: str


def load() -> None:
    """Load all modules that `nmt` loads, so that forks need not. Starts no thread."""
    os.environ |= FEW_THREADS
    import nmt_cli

    ours = (module.name for module in pkgutil.walk_packages(nmt_cli.__path__, "nmt_cli."))
    for name in (*ours, *NEEDED_LATER):
        if not name.endswith((".fused", ".__main__")):
            with suppress(ImportError):
                importlib.import_module(name)
    resource_tracker.ensure_running()  # otherwise every process with children would start one
    gc.freeze()  # garbage collection would copy the pages that forks share


def run(
    arguments: list[str],
    folder: Path,
    seconds: float,
    limits: Mapping[int, int] = MOST_MEMORY,
    as_nobody: bool = False,
) -> Ended:
    """Run `nmt` with these arguments in `folder`, which receives its output, for at most `seconds`.

    `limits` are resource limits. `as_nobody` makes root a user without permission to write everywhere.
    """
    sys.stdout.flush()
    errors, theirs = os.pipe()  # a file could not grow on a full disk either
    fcntl.fcntl(theirs, fcntl.F_SETPIPE_SZ, MOST_ERRORS)
    pid = os.fork()
    if not pid:
        os.dup2(theirs, 2)
        _become(arguments, folder, limits, as_nobody)
    os.close(theirs)
    watched = os.pidfd_open(pid)
    in_time = bool(select.select([watched], [], [], seconds)[0])
    os.close(watched)
    if not in_time:
        os.killpg(pid, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    os.set_blocking(errors, False)
    with os.fdopen(errors, "rb") as stream:
        text = (stream.read() or b"").decode(errors="backslashreplace")
    return Ended(code if in_time else None, (folder / "stdout").read_bytes(), text)


def _become(arguments: list[str], folder: Path, limits: Mapping[int, int], as_nobody: bool) -> NoReturn:
    from nmt_cli.cli.main import main

    # A fork has loaded the modules of nmt's children, which take most of the time of a command.
    fork = multiprocessing.get_context("fork")
    vars(multiprocessing).update(get_context=lambda _: fork)
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
