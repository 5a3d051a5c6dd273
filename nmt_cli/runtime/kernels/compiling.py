"""Compile the kernels of several names with a process per core, and report the progress."""

import os
import sys
import threading
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from subprocess import DEVNULL, PIPE

from nmt_cli.errors import Notice
from nmt_cli.runtime.kernels.loading import announced, compiled_kernels
from nmt_cli.runtime.programs import kill_program, start_program
from nmt_cli.runtime.threads import available_cores

QUIET_SECONDS = 5.0
"""Time between two reports of the progress."""


def prepare(*names: str) -> None:
    """Import the kernels of `names`, so that processes forked later have them. Compile missing kernels
    with all cores, and issue a `Notice` every few seconds."""
    own = compiled_kernels("runtime.kernels.compiled")
    missing = [name for name in names if own and not own.FILES.read(name)]
    begin = shown = time.monotonic()
    with ExitStack() as stack:
        # A claim, because the ranks of a machine all begin here, and one assistant per core is enough.
        if own and missing and own.FILES.claim(__name__, seconds=0):
            stack.callback(own.FILES.release, __name__)
            for number in range(1, min(available_cores(), len(missing))):
                # Each begins with another name. A kernel that another process has claimed is awaited.
                stack.enter_context(_assistant([*missing[-number:], *missing[:-number]]))
        for done, name in enumerate(names):
            if announced() and time.monotonic() > shown + QUIET_SECONDS:
                shown = time.monotonic()
                _report(f"{done} of {len(names)} groups after {shown - begin:.0f} s ...")
            compiled_kernels(name)
    for name in missing:
        if own and compiled_kernels(name):
            own.FILES.write(name, b"compiled")
    if missing and announced():
        _report(f"done after {time.monotonic() - begin:.0f} s")


def _report(text: str) -> None:
    warnings.warn(f"Compiling CPU kernels: {text}", Notice, stacklevel=3)


@contextmanager
def _assistant(names: Sequence[str]) -> Iterator[None]:
    """Run a process for the block that compiles and stores the kernels of `names` in this order."""
    # Not a fork, as other threads may hold locks. `multiprocessing` would run the user's script again.
    command = [sys.executable, "-P", "-c", f"from {__name__} import assist; assist()", *names]
    path = os.pathsep.join(filter(None, sys.path))
    try:
        process = start_program(command, {"PYTHONPATH": path}, stdin=PIPE, stdout=DEVNULL, stderr=DEVNULL)
    except OSError:  # such as a limit of processes
        yield
        return
    with process:
        try:
            yield
        finally:
            kill_program(process)


def assist() -> None:
    """Compile the kernels of the names in the arguments. End as soon as the parent process ends."""
    # The pipe ends with the parent, even if that is killed.
    threading.Thread(target=lambda: (sys.stdin.read(), os._exit(1)), daemon=True).start()
    for name in sys.argv[1:]:
        compiled_kernels(name)
