"""`Popen` for processes of the fork server."""

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from select import select
from subprocess import DEVNULL, PIPE, Popen, TimeoutExpired
from typing import IO, AnyStr, cast

from tests import fork_server

SCRIPT = Path(fork_server.__file__)


@contextmanager
def served(folder: Path) -> Iterator[Path]:
    """Start a fork server and yield the path of its socket. The server ends with the context."""
    path = folder / "socket"
    # A process with threads cannot fork, and threads of OpenMP must not spin. See nmt_cli.cli.main.
    one_thread = {"OPENBLAS_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}
    command = [sys.executable, str(SCRIPT), str(path)]
    with Popen(
        command, stdin=PIPE, stdout=DEVNULL, start_new_session=True, env={**os.environ, **one_thread}
    ) as server:
        while not path.exists():
            assert server.poll() is None
        yield path


def script(path: Path) -> str:
    """Return a shell script that runs `nmt` in a fork of the server at `path`."""
    return f'#!/bin/sh\nexec {sys.executable} -I -S {SCRIPT} {path} run "$@"\n'


class Forked(Popen[AnyStr]):
    """A process of `nmt` in a fork, with the methods of `Popen` that the tests use."""

    def __init__(
        self,
        server: Path,
        arguments: Sequence[object],
        stdin: int = DEVNULL,
        stdout: int = PIPE,
        stderr: int = PIPE,
        text: bool = False,
        start_new_session: bool = False,
    ) -> None:
        self.args = ["nmt", *map(str, arguments)]
        request = {
            "arguments": self.args[1:],
            "environment": dict(os.environ),
            "folder": str(Path.cwd()),
            "session": start_new_session,
        }
        streams = [_stream(stdin, "w", text), _stream(stdout, "r", text), _stream(stderr, "r", text)]
        self.stdin, self.stdout, self.stderr = (cast(IO[AnyStr] | None, pipe) for _, pipe in streams)
        self._connection = fork_server.ask(str(server), request, [descriptor for descriptor, _ in streams])
        for descriptor, _ in streams:
            os.close(descriptor)
        self.pid = self._receive()
        self.returncode: int | None = None

    def _receive(self) -> int:
        """Return the next number from the server: the process id, then the exit code."""
        number = fork_server.receive(self._connection)
        assert number is not None, "the fork server has ended"
        return number

    def poll(self) -> int | None:
        with suppress(TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            if not select([self._connection], [], [], timeout)[0]:
                raise TimeoutExpired(self.args, timeout or 0)
            with self._connection:
                self.returncode = self._receive()
        return self.returncode

    def send_signal(self, sig: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, sig)

    def communicate(self, input: AnyStr | None = None, timeout: float | None = None) -> tuple[AnyStr, AnyStr]:
        with ThreadPoolExecutor() as pool:
            reading = [pool.submit(stream.read) for stream in (self.stdout, self.stderr) if stream]
            if self.stdin:
                with suppress(BrokenPipeError), self.stdin:
                    if input is not None:
                        self.stdin.write(input)
            try:
                self.wait(timeout)
            except TimeoutExpired:
                self.kill()
                raise
            output, errors = (future.result() for future in reading)
        return output, errors


def _stream(stream: int, mode: str, text: bool) -> tuple[int, IO[str] | IO[bytes] | None]:
    """Return the descriptor of a stream for the process, and the file at the other end of a pipe or None."""
    if stream == subprocess.DEVNULL:
        return os.open(os.devnull, os.O_RDWR), None
    if stream != subprocess.PIPE:
        return os.dup(stream), None
    read, write = os.pipe()
    descriptor, other = (read, write) if mode == "w" else (write, read)
    return descriptor, os.fdopen(other, mode if text else f"{mode}b")
