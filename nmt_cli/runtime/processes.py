"""Child processes: tasks shared among workers with results in order, and how each child starts and ends.

A crew is a group of workers, processes that compute the results of tasks. A forked process begins as a copy
of this one, a spawned process from scratch.
"""

import mmap
import multiprocessing
import os
import pickle
import signal
import stat
import tempfile
import threading
import traceback
import weakref
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from itertools import chain, islice
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from multiprocessing.reduction import DupFd
from pathlib import Path
from typing import Any, Literal, TypeVar

from nmt_cli.errors import UserError

Task = TypeVar("Task")
Result = TypeVar("Result")

Progress = Callable[[str, int, int], None]
"""Called with the stage, the amount done, and the total amount, which is 0 if unknown."""


def in_order(work: Callable[[Task], Result], tasks: Iterable[Task], workers: int) -> Iterator[Result]:
    """Yield the result of `work` for each task, in the order of the tasks.

    `workers` processes compute them. With 1 worker, the calling process does. Memory holds at most `workers`
    tasks and results. Raise the error of a task in place of its result, and `UserError` if a worker was
    killed.
    """
    if workers == 1:
        yield from map(work, tasks)
        return
    waiting = iter(tasks)
    first = list(islice(waiting, workers))
    with crew(work, len(first)) as share:
        yield from share(chain(first, waiting))


@contextmanager
def crew(
    work: Callable[[Task], Result], workers: int
) -> Iterator[Callable[[Iterable[Task]], Iterator[Result]]]:
    """Start `workers` processes for several rounds of tasks, and kill them at the end of the block.

    Yield a function that takes the tasks of a round, and yields the results of `work` in their order. All
    results of a round must be used before the next round.
    """
    with ExitStack() as stack:
        processes = [stack.enter_context(child("spawn", _serve, work)) for _ in range(workers)]
        yield lambda tasks: _shared([connection for _, connection in processes], iter(tasks))


def _shared(workers: Sequence[Connection], waiting: Iterator[Any]) -> Iterator[Any]:
    """Yield the results of the `waiting` tasks in order. Each worker in turn has one task at a time."""
    busy = deque[Connection]()
    for worker, task in zip(workers, waiting, strict=False):
        _send(worker, task)
        busy.append(worker)
    while busy:
        worker = busy.popleft()
        result = _receive(worker)
        # Send the next task before the result is used, so that the worker is never idle.
        for task in islice(waiting, 1):
            _send(worker, task)
            busy.append(worker)
        yield result


def in_child(work: Callable[[Task], Result], task: Task) -> Result:
    """Return the result of `work` on `task`, computed by a process that ends afterwards.

    This helps with libraries that ignore Ctrl-C for long, or never free their memory. Raise the error of
    `work`, and `UserError` if the process was killed.
    """
    with crew(work, 1) as share:
        (result,) = share([task])
        return result


StartMethod = Literal["fork", "spawn"]
"""How a child process starts: as a copy of this process, or from scratch."""


@contextmanager
def child(
    start: StartMethod, target: Callable[..., object], *arguments: object
) -> Iterator[tuple[BaseProcess, Connection]]:
    """Start a process that calls `target` with its end of a pipe and `arguments`. Yield the process and our
    end.

    A spawned process gets the arguments pickled. At the end of the block, the process is killed and the pipe
    closed. A forked copy of this process may leave the block too. It kills nothing.
    """
    context: Any = multiprocessing.get_context(start)
    owner = os.getpid()
    if start == "spawn":
        resource_tracker.ensure_running()  # started by `process.start`, it would unblock signals
    ours, theirs = context.Pipe()
    process: BaseProcess = context.Process(target=target, args=(theirs, *arguments), daemon=True)
    try:
        with _signals_held():
            process.start()
        # As long as this process has their end open, reading from a dead process would wait forever.
        theirs.close()
        yield process, ours
    finally:
        if process.pid and os.getpid() == owner:  # False in a forked copy of this process
            process.kill()
            process.join()
        theirs.close()
        ours.close()


def _send(worker: Connection, task: object) -> None:
    """Send a task to a worker. Raise `UserError` if the worker was killed."""
    try:
        worker.send(task)
    except OSError as error:
        raise _killed() from error


def _receive(worker: Connection) -> Any:
    """Return the result of a worker's task. Raise its error, or `UserError` if the worker was killed."""
    try:
        result, error = worker.recv()
    except (EOFError, OSError) as closed:
        raise _killed() from closed
    if error:
        raise error
    return result


def _killed() -> UserError:
    """Return the error to raise if a worker ended without a result. The message blames a lack of memory."""
    return UserError(
        "a worker process was killed, probably because memory ran out. Try again with fewer --workers, "
        "a smaller tokenizer.sample_lines if it learned a tokenizer, or without [sampling] if it trained."
    )


def _serve(parent: Connection, work: Callable[[Any], Any]) -> None:
    """Do `work` on tasks of the parent. Send pairs of a result and an error, of which one is None."""
    obey_parent()
    while True:
        task = parent.recv()
        try:
            parent.send((work(task), None))
        except UserError as error:
            parent.send((None, error))
        except Exception as error:
            parent.send((None, portable(error)))


def portable(error: BaseException) -> BaseException:
    """Return `error` with its traceback as a note, or a `RuntimeError` with its text if pickling it fails."""
    error.add_note(traceback.format_exc())
    try:
        # Errors whose __init__ has other parameters can be pickled, but not unpickled.
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error


def obey_parent() -> None:
    """Let this child process end on SIGTERM, without a traceback, and when its parent ends."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    # It was blocked by `_signals_held`. Ctrl-C and SIGHUP stay blocked.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    if parent := multiprocessing.parent_process():
        threading.Thread(target=_end_with, args=(parent.sentinel,), daemon=True).start()


def _end_with(sentinel: int) -> None:
    """Wait for `sentinel`, the end of the parent. Then end this process with exit code 1."""
    wait([sentinel])
    # sys.exit would end only this thread.
    os._exit(1)


@contextmanager
def _signals_held() -> Iterator[None]:
    """Block SIGINT, SIGHUP and SIGTERM while a child is started.

    The child keeps the first two blocked. So Ctrl-C, or the end of the terminal, reaches the parent only.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGHUP, signal.SIGTERM})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class SharedCount:
    """A whole number that this process and its children share, forked or spawned. It is 0 at first."""

    def __init__(self, inherited: Any = None) -> None:
        """`inherited` is for copies in spawned processes."""
        # Unlike multiprocessing's own, it needs no writable /dev/shm, which containers may lack.
        self._file = inherited.detach() if inherited else _memory_file()
        weakref.finalize(self, os.close, self._file)
        os.truncate(self._file, 8)
        self._memory = memoryview(mmap.mmap(self._file, 8)).cast("Q")

    def __reduce__(self) -> tuple[Any, ...]:
        return SharedCount, (DupFd(self._file),)

    @property
    def value(self) -> int:
        """The current number. Only one thread of all processes may change it at a time."""
        return self._memory[0]

    @value.setter
    def value(self, value: int) -> None:
        self._memory[0] = value


def _memory_file() -> int:
    """Return the descriptor of a new file, in memory if the system can."""
    if make := getattr(os, "memfd_create", None):
        return int(make("nmt"))
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def close_sockets(needed: Collection[int]) -> None:
    """Close the sockets that this forked process inherited, except the file descriptors in `needed`.

    An open copy would keep a connection open after the parent closes it. Each closed number becomes
    /dev/null, since Python objects still refer to the number. Do nothing without /proc.
    """
    with suppress(OSError), Path(os.devnull).open("rb") as null:
        numbers = [int(entry.name) for entry in Path("/proc/self/fd").iterdir()]
        for number in filter(_is_socket, {*numbers}.difference(needed)):
            with suppress(OSError):
                os.dup2(null.fileno(), number, inheritable=False)


def _is_socket(number: int) -> bool:
    """Return whether the file descriptor `number` is an open socket."""
    try:
        return stat.S_ISSOCK(os.fstat(number).st_mode)
    except OSError:
        return False
