"""Starts one process per device on this machine, which train together."""

import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Sequence
from subprocess import Popen, TimeoutExpired

from nmt_cli.errors import EXIT_CODES
from nmt_cli.runtime.programs import kill_program, start_program
from nmt_cli.training.step.distributed import child_environments

POLL_SECONDS = 0.1
SECONDS_TO_SAVE, SECONDS_TO_END = 60.0, 5.0
"""Time for the other processes after one has failed. They get more if they were asked to stop and save."""

LAUNCHER = "NMT_LAUNCHER"
"""Environment variable with the process id of the launcher."""


def run_on_devices(
    arguments: Sequence[str], devices: int, stop_wanted: Callable[[], int], report: Callable[[str], None]
) -> int:
    """Run `nmt` with `arguments` in one process per device, and wait until all have ended.

    stop_wanted: returns the number of a signal to pass on to all processes, or 0. Only the first signal is
        passed on.
    report: receives a line if a signal has ended a process.

    Return 0 if all succeed, and otherwise the exit code of the first failure. After a failure, the other
    processes are ended, since they would wait for the lost one.
    """
    command = [sys.executable, "-m", "nmt_cli", *arguments]
    launcher = {LAUNCHER: str(os.getpid())}
    # In their own sessions, the processes do not get Ctrl-C. This process passes it on once.
    processes = [
        start_program(command, launcher | environment)
        for environment in child_environments(devices, _free_port())
    ]
    stopping = False
    try:
        while True:
            codes = [process.poll() for process in processes]
            if failures := [(code, rank) for rank, code in enumerate(codes) if code]:
                # Of several failures, one by a signal comes first: it ends the others, and not the reverse.
                code, rank = min(failures)
                stopping = stopping or code in EXIT_CODES.values()
                return _exit_code(code, rank, report)
            if None not in codes:
                return 0
            if (number := stop_wanted()) and not stopping:
                stopping = True
                _signal_all(processes, number)
            time.sleep(POLL_SECONDS)
    finally:
        _end(processes, stopping)


def _exit_code(code: int, rank: int, report: Callable[[str], None]) -> int:
    """Return the exit code for `code`, a result of `Popen.poll` that is not 0.

    A negative code means that a signal ended the process. Then report the signal, and return 128 plus its
    number, as shells do.
    """
    if code > 0:
        return code
    report(f"process {rank} was ended by {signal.Signals(-code).name}. The others end too.")
    return 128 - code


def _signal_all(processes: Sequence["Popen[bytes]"], number: int) -> None:
    for process in processes:
        process.send_signal(number)


def _end(processes: Sequence["Popen[bytes]"], stopping: bool) -> None:
    """Wait until all processes have ended, and kill those that are too slow.

    If they are `stopping`, they save a checkpoint and have `SECONDS_TO_SAVE`. Otherwise send SIGTERM, and
    wait for `SECONDS_TO_END`.
    """
    deadline = time.monotonic() + (SECONDS_TO_SAVE if stopping else SECONDS_TO_END)
    if not stopping:
        _signal_all([process for process in processes if process.poll() is None], signal.SIGTERM)
    for process in processes:
        try:
            # All share one deadline, so that the waits for slow processes do not add up.
            process.wait(max(0.0, deadline - time.monotonic()))
        except TimeoutExpired:
            kill_program(process)


def _free_port() -> int:
    """Return a TCP port that is free on this machine now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
