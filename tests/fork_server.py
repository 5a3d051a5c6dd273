"""Run `nmt` without start-up time, in forks of a server that has loaded torch and all modules.

`fork_server.py PATH` serves at the socket PATH until its stdin ends. `fork_server.py PATH run ARGUMENT ...`
runs `nmt ARGUMENT ...` in a fork of it. Tests in Python use `tests.forked`. Processes of `nmt` that such a
fork starts, as `nmt train --devices 2` does, are forks of the fork.
"""

# Shell scripts start this client for each `nmt`, so it imports only modules that load fast.
import os
import signal
import socket
import sys
from typing import Any, NoReturn

LAZY_MODULES = (
    *("torch._dynamo", "sacrebleu.tokenizers.tokenizer_13a", "sacremoses", "numba"),
    *("rich.live", "rich.table", "concurrent.futures.thread", "multiprocessing.popen_spawn_posix"),
)
"""Modules that `nmt_cli` imports at first use."""

CHANGE = "NMT_TEST_CHANGE"
"""The variable with code that a fork runs before `nmt`, to simulate a fault."""


def ask(path: str, request: dict[str, Any], streams: list[int]) -> socket.socket:
    """Request a fork that runs `nmt` with these streams as stdin, stdout and stderr.

    A request has `arguments`, `environment`, `folder`, and `session`: whether the fork starts a session. The
    server sends the process id at once, and the exit code at the end.
    """
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(path)
    content = repr(request).encode()
    socket.send_fds(connection, [b"%10d" % len(content)], streams)
    connection.sendall(content)
    return connection


def receive(connection: socket.socket) -> int | None:
    """Return the next number from the server, or None if the server has ended."""
    number = connection.recv(10, socket.MSG_WAITALL)
    return int(number) if number else None


def _client(path: str, arguments: list[str]) -> int:
    """Run `nmt` in a fork with the streams of this process, and return its exit code as shells do."""
    request = {"arguments": arguments, "environment": dict(os.environ), "folder": os.getcwd()}  # noqa: PTH109
    connection = ask(path, {**request, "session": False}, [0, 1, 2])
    fork = receive(connection) or 0
    # torchrun ends its processes by this signal.
    signal.signal(signal.SIGTERM, lambda number, _: os.kill(fork, number))
    code = receive(connection)
    if code is None:
        return 1
    return 128 - code if code < 0 else code


_exit_codes: list[int] = []


class _Server:
    def __init__(self, path: str) -> None:
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(path)
        self._listener.listen(100)
        self._wakeup, self._wakeup_sender = socket.socketpair()
        self._wakeup.setblocking(False)
        self._wakeup_sender.setblocking(False)
        self._children: dict[int, socket.socket] = {}
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._wakeup_sender.fileno(), warn_on_full_buffer=False)

    def serve(self) -> None:
        """Serve requests. Return only in forks, which then run `nmt`. Exit when stdin ends."""
        from select import select

        while True:
            waiting = {connection.fileno(): pid for pid, connection in self._children.items()}
            ready = select([0, self._listener.fileno(), self._wakeup.fileno(), *waiting], [], [])[0]
            if self._wakeup.fileno() in ready:
                self._wakeup.recv(1000)
                self._send_exit_codes()
            # Clients send nothing after their request, so this one was killed. Its fork must end too:
            # torchrun kills a process that takes 30 s to end, and starts another that wants the same run.
            for pid in [waiting[number] for number in ready if number in waiting]:
                if pid in self._children:
                    os.kill(pid, signal.SIGKILL)
            if self._listener.fileno() in ready and self._fork():
                return
            if 0 in ready:
                self._exit()

    def _fork(self) -> bool:
        """Fork, and return whether this is the child."""
        import ast

        connection, _ = self._listener.accept()
        length, streams, _, _ = socket.recv_fds(connection, 10, 3)
        content = connection.recv(int(length), socket.MSG_WAITALL)
        if pid := os.fork():
            self._children[pid] = connection
            connection.sendall(b"%10d" % pid)
        else:
            signal.set_wakeup_fd(-1)
            for end in (
                self._listener,
                self._wakeup,
                self._wakeup_sender,
                connection,
                *self._children.values(),
            ):
                end.close()
            _set_up(ast.literal_eval(content.decode()), streams)
        for stream in streams:
            os.close(stream)
        return not pid

    def _send_exit_codes(self) -> None:
        """Send the exit codes of ended forks to their clients."""
        from contextlib import suppress

        for pid, connection in list(self._children.items()):
            ended_pid, status = os.waitpid(pid, os.WNOHANG)
            if ended_pid:
                with suppress(BrokenPipeError):  # the client has ended
                    connection.sendall(b"%10d" % os.waitstatus_to_exitcode(status))
                self._children.pop(pid).close()

    def _exit(self) -> NoReturn:
        """Kill all forks and exit."""
        for pid in self._children:
            os.kill(pid, signal.SIGKILL)
        os._exit(0)


def _set_up(request: dict[str, Any], streams: list[int]) -> None:
    """Give this fork the arguments, environment, folder and streams of a new `python -m nmt_cli`."""
    import tempfile

    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if request["session"]:
        os.setsid()
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
    tempfile.tempdir = None  # the new environment may name another folder
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    sys.argv = ["nmt", *request["arguments"]]
    # Processes that this fork starts inherit the change of its modules, so they must not make it again.
    exec(os.environ.pop(CHANGE, ""), {})
    sys.path[0] = request["folder"]
    sys.stdin = open(0, closefd=False)  # noqa: SIM115
    sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", buffering=1, errors="backslashreplace", closefd=False)  # noqa: SIM115


def _fork_instead() -> None:
    """Change `subprocess.Popen` so that each `nmt` that this process starts is a fork of it."""
    import subprocess
    from functools import partial

    popen: Any = subprocess.Popen

    def start(command: list[str], env: dict[str, str] | None = None, **options: Any) -> Any:
        if command[:3] == [sys.executable, "-m", "nmt_cli"]:
            sys.stdout.flush()
            request = {"arguments": command[3:], "environment": env or dict(os.environ), "session": False}
            # Code before the program in a fork never returns.
            run = partial(_run, {**request, "folder": os.getcwd()})  # noqa: PTH109
            # A new Python ignores SIGPIPE, as this one does.
            options |= {"preexec_fn": run, "restore_signals": False}
        return popen(command, env=env, **options)

    subprocess.Popen = start  # type: ignore[assignment,misc]


def _run(request: dict[str, Any]) -> NoReturn:
    """Run the requested `nmt` in this fork, whose streams are set up already, and exit."""
    import runpy
    import traceback

    os.closerange(3, 1024)  # descriptors of the parent, which waits until one of them is closed
    for number in filter(lambda number: callable(signal.getsignal(number)), signal.valid_signals()):
        signal.signal(number, signal.SIG_DFL)
    _set_up(request, [])
    code = 1
    try:
        runpy.run_module("nmt_cli", run_name="__main__", alter_sys=True)
    except SystemExit as end:
        assert isinstance(end.code, int)
        code = end.code
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    os._exit(code)


def load(additional: tuple[str, ...] = ()) -> None:
    """Import all modules of `nmt_cli` and some more, so that forks need not. Check that no thread started."""
    import gc
    import importlib
    import pkgutil
    from contextlib import suppress
    from pathlib import Path

    import nmt_cli

    names = [module.name for module in pkgutil.walk_packages(nmt_cli.__path__, "nmt_cli.")]
    for name in (*names, *LAZY_MODULES, *additional):
        if not (name.endswith(".__main__") or ".gpu_" in name):
            with suppress(ImportError):
                importlib.import_module(name)
    tasks = Path("/proc/self/task")
    assert not tasks.exists() or len([*tasks.iterdir()]) == 1, "a process with threads can't be forked"
    gc.freeze()  # garbage collection would copy the pages that forks share


def _leave() -> None:
    """Exit a fork without destroying its modules, since that would copy their memory."""
    sys.stdout.flush()
    sys.stderr.flush()
    if _exit_codes:
        os._exit(_exit_codes[0])


def _main(path: str, arguments: list[str]) -> None:
    """Run `nmt` as a client if there are arguments. Otherwise serve at the socket `path`."""
    if arguments:
        sys.exit(_client(path, arguments[1:]))
    import atexit

    atexit.register(_leave)  # called last, as it is registered first
    server = _Server(path)
    load()
    server.serve()
    _fork_instead()
    import runpy

    try:
        runpy.run_module("nmt_cli", run_name="__main__", alter_sys=True)
    except SystemExit as end:
        assert isinstance(end.code, int)
        _exit_codes.append(end.code)
        raise


if __name__ == "__main__":
    _main(sys.argv[1], sys.argv[2:])
