"""Several processes on this machine, one for each device, that train together."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence

from nmt_cli.errors import EXIT_CODES
from nmt_cli.training.step.distributed import child_environments

POLL_SECONDS = 0.1
SECONDS_TO_SAVE, SECONDS_TO_END = 60.0, 5.0
"""That the others have once one process has ended badly: more where all were asked to stop, and save."""


LAUNCHER = "NMT_LAUNCHER"
"""The variable that tells a process the number of the one that started it."""


def run_on_devices(
    arguments: Sequence[str], devices: int, stop_wanted: Callable[[], int], tell: Callable[[str], None]
) -> int:
    """Run `nmt` with `arguments` once for each device; returns the exit code of the first one to end badly.

    Where one ends badly, so do all. `stop_wanted` gives the number of a signal to pass on to all, or 0, and
    `tell` takes a line about a process that could not say itself why it ended.
    """
    command = [sys.executable, "-m", "nmt_cli", *arguments]
    ours = {**os.environ, LAUNCHER: str(os.getpid())}
    # In sessions of their own, Ctrl-C reaches this process alone, which passes it on once.
    processes = [
        subprocess.Popen(command, env={**ours, **environment}, start_new_session=True)
        for environment in child_environments(devices, _free_port())
    ]
    told = False
    try:
        while True:
            codes = [process.poll() for process in processes]
            if bad := [(code, rank) for rank, code in enumerate(codes) if code]:
                # Of several in one look, those that were killed have the others end, and not the reverse.
                code, rank = min(bad)
                told = told or code in EXIT_CODES.values()
                if code < 0:
                    tell(f"process {rank} was ended by {signal.Signals(-code).name}; the others end too.")
                return 128 - code if code < 0 else code
            if all(code == 0 for code in codes):
                return 0
            if (number := stop_wanted()) and not told:
                told = True
                for process in processes:
                    process.send_signal(number)
            time.sleep(POLL_SECONDS)
    finally:
        _end(processes, told)


def _end(processes: Sequence["subprocess.Popen[bytes]"], told: bool) -> None:
    """See the last process end, by force if need be; one that was `told` to is not told twice."""
    deadline = time.monotonic() + (SECONDS_TO_SAVE if told else SECONDS_TO_END)
    for process in processes:
        if process.poll() is None and not told:
            process.send_signal(signal.SIGTERM)
    for process in processes:
        try:
            process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
