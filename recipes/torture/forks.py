"""`nmt` in forks of this process, which has loaded all it needs: hundreds of commands a minute."""

import importlib
import os
import pkgutil
import resource
import select
import signal
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

MOST_MEMORY = 24 << 30
"""Bytes of addresses; PyTorch alone takes some."""


@dataclass(frozen=True, slots=True)
class Ended:
    """How a command ended."""

    code: int | None
    """None where it had to be killed; negative where a signal ended it."""

    out: bytes
    errors: str


def load() -> None:
    """Load what `nmt` loads, so that forks need not; no thread may be started."""
    import nmt_cli

    for module in pkgutil.walk_packages(nmt_cli.__path__, "nmt_cli."):
        if not module.name.endswith((".fused", ".__main__")):
            with suppress(ImportError):
                importlib.import_module(module.name)


def run(arguments: list[str], folder: Path, seconds: float) -> Ended:
    """Run `nmt` with these arguments in `folder`, where its output is left, for so many seconds at most."""
    sys.stdout.flush()
    pid = os.fork()
    if not pid:
        _become(arguments, folder)
    watched = os.pidfd_open(pid)
    in_time = bool(select.select([watched], [], [], seconds)[0])
    os.close(watched)
    if not in_time:
        os.killpg(pid, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    texts = [(folder / name).read_bytes() for name in ("stdout", "stderr")]
    return Ended(code if in_time else None, texts[0], texts[1].decode(errors="backslashreplace"))


def _become(arguments: list[str], folder: Path) -> NoReturn:
    from nmt_cli.cli.main import main

    code = 120
    try:
        os.setsid()
        os.chdir(folder)
        streams = [os.open(os.devnull, os.O_RDONLY)]
        streams += [os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC) for name in ("stdout", "stderr")]
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
        sys.stdout, sys.stderr = (
            os.fdopen(number, "w", buffering=1, errors="backslashreplace") for number in (1, 2)
        )
        resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))
        sys.argv = ["nmt", *arguments]
        main()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 121
    finally:
        with suppress(OSError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)
