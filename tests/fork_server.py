"""Processes that run `nmt` at once: forks of one that has loaded what `nmt` needs, torch above all.

`fork_server.py PATH` serves at the socket PATH until its stdin ends; `fork_server.py PATH run ARGUMENT ...`
is `nmt ARGUMENT ...` in a fork of it. `tests.forked` is the door for tests in Python. The processes of
`nmt` that such a fork starts, for `nmt train --devices 2`, are forks of it in turn.
"""

# The client is started for each `nmt` of a shell script, so that only what loads in no time stands here.
import os
import signal
import socket
import sys
from typing import Any, NoReturn

NEEDED_LATER = (
    *("torch._dynamo", "sacrebleu.tokenizers.tokenizer_13a", "sacremoses", "numba"),
    *("rich.live", "rich.table", "concurrent.futures.thread", "multiprocessing.popen_spawn_posix"),
)
"""What the modules of `nmt_cli` load only when they are called."""


def ask(path: str, request: dict[str, Any], streams: list[int]) -> socket.socket:
    """Have a fork run `nmt`, with these as its stdin, stdout and stderr.

    A request has `arguments`, `environment`, `folder`, and `session`: whether it leads a session of its own.
    The connection tells the process id at once, and the exit code at the end.
    """
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(path)
    content = repr(request).encode()
    socket.send_fds(connection, [b"%10d" % len(content)], streams)
    connection.sendall(content)
    return connection


def told(connection: socket.socket) -> int | None:
    """The next number from the server; None if the server has ended."""
    number = connection.recv(10, socket.MSG_WAITALL)
    return int(number) if number else None


def _client(path: str, arguments: list[str]) -> int:
    request = {"arguments": arguments, "environment": dict(os.environ), "folder": os.getcwd()}  # noqa: PTH109
    connection = ask(path, {**request, "session": False}, [0, 1, 2])
    told(connection)
    code = told(connection)
    if code is None:
        return 1
    return 128 - code if code < 0 else code


_exit_codes: list[int] = []


class _Server:
    def __init__(self, path: str) -> None:
        self.door = socket.socket(socket.AF_UNIX)
        self.door.bind(path)
        self.door.listen(100)
        self.bell, self.rope = socket.socketpair()
        self.bell.setblocking(False)
        self.rope.setblocking(False)
        self.children: dict[int, socket.socket] = {}
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self.rope.fileno(), warn_on_full_buffer=False)

    def serve(self) -> None:
        """Returns in each fork, which is then to run `nmt`; the server itself exits when its stdin ends."""
        from select import select

        while True:
            ready = select([0, self.door.fileno(), self.bell.fileno()], [], [])[0]
            if self.bell.fileno() in ready:
                self.bell.recv(1000)
                self._tell_ends()
            if self.door.fileno() in ready and self._fork():
                return
            if 0 in ready:
                self._end()

    def _fork(self) -> bool:
        """Whether this is the fork."""
        import ast

        connection, _ = self.door.accept()
        length, streams, _, _ = socket.recv_fds(connection, 10, 3)
        content = connection.recv(int(length), socket.MSG_WAITALL)
        if pid := os.fork():
            self.children[pid] = connection
            connection.sendall(b"%10d" % pid)
        else:
            signal.set_wakeup_fd(-1)
            for ours in (self.door, self.bell, self.rope, connection, *self.children.values()):
                ours.close()
            _become(ast.literal_eval(content.decode()), streams)
        for stream in streams:
            os.close(stream)
        return not pid

    def _tell_ends(self) -> None:
        from contextlib import suppress

        for pid, connection in list(self.children.items()):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                with suppress(BrokenPipeError):  # nobody waits for it any more
                    connection.sendall(b"%10d" % os.waitstatus_to_exitcode(status))
                self.children.pop(pid).close()

    def _end(self) -> NoReturn:
        for pid in self.children:
            os.kill(pid, signal.SIGKILL)
        os._exit(0)


def _become(request: dict[str, Any], streams: list[int]) -> None:
    """Make this process look as if `python -m nmt_cli` had just been started."""
    import tempfile

    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if request["session"]:
        os.setsid()
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
    tempfile.tempdir = None  # it follows the environment
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    sys.argv = ["nmt", *request["arguments"]]
    sys.path[0] = request["folder"]
    sys.stdin = open(0, closefd=False)  # noqa: SIM115
    sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", buffering=1, errors="backslashreplace", closefd=False)  # noqa: SIM115


def _fork_instead() -> None:
    """Have the `nmt` that this `nmt` starts be forks of it."""
    import subprocess
    from functools import partial

    popen: Any = subprocess.Popen

    def start(command: list[str], env: dict[str, str] | None = None, **options: Any) -> Any:
        if command[:3] == [sys.executable, "-m", "nmt_cli"]:
            sys.stdout.flush()
            request = {"arguments": command[3:], "environment": env or dict(os.environ), "session": False}
            # What runs before the program that a fork becomes never returns.
            run = partial(_run, {**request, "folder": os.getcwd()})  # noqa: PTH109
            # A new Python ignores SIGPIPE, as this one does.
            options |= {"preexec_fn": run, "restore_signals": False}
        return popen(command, env=env, **options)

    subprocess.Popen = start  # type: ignore[assignment,misc]


def _run(request: dict[str, Any]) -> NoReturn:
    """Be the `nmt` that was asked for, in a fork whose streams are the right ones."""
    import runpy
    import traceback

    os.closerange(3, 1024)  # of the process above; it waits for one of them
    for number in filter(lambda number: callable(signal.getsignal(number)), signal.valid_signals()):
        signal.signal(number, signal.SIG_DFL)
    _become(request, [])
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


def _load() -> None:
    import gc
    import importlib
    import pkgutil
    from contextlib import suppress
    from pathlib import Path

    import nmt_cli

    names = [module.name for module in pkgutil.walk_packages(nmt_cli.__path__, "nmt_cli.")]
    for name in (*names, *NEEDED_LATER):
        if not name.endswith((".fused", ".__main__")):
            with suppress(ImportError):
                importlib.import_module(name)
    tasks = Path("/proc/self/task")
    assert not tasks.exists() or len([*tasks.iterdir()]) == 1, "a process with threads can't be forked"
    gc.freeze()


def _leave() -> None:
    """Spare a fork the taking down of all that it has loaded, which means to copy it first."""
    sys.stdout.flush()
    sys.stderr.flush()
    if _exit_codes:
        os._exit(_exit_codes[0])


def _main(path: str, arguments: list[str]) -> None:
    if arguments:
        sys.exit(_client(path, arguments[1:]))
    import atexit

    atexit.register(_leave)  # the first to be registered is called last
    server = _Server(path)
    _load()
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
