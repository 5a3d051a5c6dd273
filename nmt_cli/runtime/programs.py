"""Programs that run beside this process: a rank of training, a compiler of kernels, a command of the user.

`processes.py` has the other way to run a child: a function, in a process of `multiprocessing`. That cannot
run a command, and a spawned process of it runs the user's script again.
"""

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress


def start_program(
    command: str | Sequence[str],
    variables: Mapping[str, str] | None = None,
    *,
    stdin: int | None = None,
    stdout: int | None = None,
    stderr: int | None = None,
) -> "subprocess.Popen[bytes]":
    """Start a program, and return it while it runs. Raise `OSError` if the system refuses.

    command: the name and arguments, or one text, which the shell runs.
    variables: environment variables beside those of this process.
    stdin, stdout, stderr: as for `subprocess.Popen`. None is the stream of this process.
    """
    return subprocess.Popen(
        command,
        shell=isinstance(command, str),
        env={**os.environ, **(variables or {})},
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        # In its own session, Ctrl-C does not reach it, and `kill_program` reaches its children.
        start_new_session=True,
    )


def kill_program(program: "subprocess.Popen[bytes]") -> None:
    """Kill a program and its children, and wait until it has ended. Do nothing if it was waited for."""
    # Not `poll`, which would let go of the number of a program that has ended, while its children still run.
    if program.returncode is None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(program.pid, signal.SIGKILL)
        program.wait()
