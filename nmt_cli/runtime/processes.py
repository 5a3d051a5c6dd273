"""Child processes: tasks shared among workers, with results in order, and what every child needs to end
well."""

import mmap
import multiprocessing
import os
import pickle
import signal
import stat
import threading
import traceback
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from itertools import chain, islice
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, TypeVar

from nmt_cli.errors import UserError

Task = TypeVar("Task")
Result = TypeVar("Result")

Progress = Callable[[str, int, int], None]
"""Called with the stage, how much of it is done, and how much there is; 0 where that is not known."""


def in_order(work: Callable[[Task], Result], tasks: Iterable[Task], workers: int) -> Iterator[Result]:
    """The results of `work` on each of `tasks`, in order, by `workers` processes; 1 means in this very
    process.

    An error in a task is raised here in place of its result. Each worker has one task at a time, so no more
    tasks and results than workers are in memory.
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
    """Start `workers` processes that stay for several rounds of tasks, and are killed at the end of the
    block.

    Yields a function that does tasks as `in_order` does; its results must be used up before it is called
    again.
    """
    with ExitStack() as stack:
        hired = [stack.enter_context(_worker(work)) for _ in range(workers)]
        yield lambda tasks: _shared(hired, iter(tasks))


def _shared(workers: Sequence[Connection], waiting: Iterator[Any]) -> Iterator[Any]:
    """The results of the tasks in order, since workers are given tasks, and asked for results, in
    rotation."""
    busy = deque[Connection]()
    for worker, task in zip(workers, waiting, strict=False):
        _send(worker, task)
        busy.append(worker)
    while busy:
        worker = busy.popleft()
        result = _receive(worker)
        # The next task before the result is used, so that the worker does not stand idle.
        for task in islice(waiting, 1):
            _send(worker, task)
            busy.append(worker)
        yield result


def in_child(work: Callable[[Task], Result], task: Task) -> Result:
    """The result of `work` on `task`, done by a process that ends with it.

    For libraries that compute for long without letting Python hear Ctrl-C, or that never return their memory.
    """
    with _worker(work) as worker:
        _send(worker, task)
        result: Result = _receive(worker)
        return result


@contextmanager
def _worker(work: Callable[[Any], Any]) -> Iterator[Connection]:
    """A process that does `work` on each task it is sent, and sends back results; killed at the end of the
    block."""
    resource_tracker.ensure_running()  # when `process.start` starts it, it unblocks the signals held there
    spawn = multiprocessing.get_context("spawn")
    ours, theirs = spawn.Pipe()
    with child(spawn.Process(target=_serve, args=(work, theirs), daemon=True), ours, theirs):
        yield ours


@contextmanager
def child(process: BaseProcess, ours: Connection, theirs: Connection) -> Iterator[None]:
    """Start `process`, and kill it at the end of the block; `ours` and `theirs` are the ends of a pipe to
    it."""
    owner = os.getpid()
    try:
        with _signals_held():
            process.start()
        # While we hold their end open too, reading from a dead process never ends.
        theirs.close()
        yield
    finally:
        if process.pid and os.getpid() == owner:  # in a forked copy of this process, it is not our child
            process.kill()
            process.join()
        theirs.close()
        ours.close()


def _send(worker: Connection, task: object) -> None:
    try:
        worker.send(task)
    except OSError as error:
        raise _killed() from error


def _receive(worker: Connection) -> Any:
    try:
        result, error = worker.recv()
    except (EOFError, OSError) as end:
        raise _killed() from end
    if error:
        raise error
    return result


def _killed() -> UserError:
    return UserError(
        "a worker process was killed, most likely for want of memory; try again with fewer --workers, "
        "a smaller tokenizer.sample_lines where it was learning, or without [sampling] where it was training."
    )


def _serve(work: Callable[[Any], Any], parent: Connection) -> None:
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
    """`error` with its traceback as a note; a RuntimeError with its text if `error` can't be pickled."""
    error.add_note(traceback.format_exc())
    try:
        # Some can be written but not read again, as those whose __init__ takes other arguments.
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error


def obey_parent() -> None:
    """Let this child process end without a traceback: on SIGTERM, and when its parent ends, even if that is
    killed."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    # Inherited as blocked, see `_signals_held`; Ctrl-C stays so.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    if parent := multiprocessing.parent_process():
        threading.Thread(target=_end_with, args=(parent.sentinel,), daemon=True).start()


def _end_with(sentinel: int) -> None:
    wait([sentinel])
    # sys.exit would end only this thread.
    os._exit(1)


@contextmanager
def _signals_held() -> Iterator[None]:
    """Block SIGINT and SIGTERM while a process is started; it inherits that, and leaves Ctrl-C to its
    parent."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class SharedCount:
    """A number that processes which are forked from this one see change."""

    def __init__(self) -> None:
        self._memory = memoryview(mmap.mmap(-1, 8)).cast("Q")

    @property
    def value(self) -> int:
        """What it is now."""
        return self._memory[0]

    @value.setter
    def value(self, value: int) -> None:
        self._memory[0] = value

    def increase(self) -> None:
        """Add one; not by several threads at a time."""
        self._memory[0] += 1


def let_go_of_sockets(kept: Collection[int]) -> None:
    """Close the sockets that this forked process got from its parent, but those `kept`.

    Else a connection that the parent closes would stay open. Their numbers are not given away again: there
    are objects that believe to own them.
    """
    with suppress(OSError), Path(os.devnull).open("rb") as nothing:
        for number in (int(entry.name) for entry in Path("/proc/self/fd").iterdir()):
            with suppress(OSError):
                if number not in kept and stat.S_ISSOCK(os.fstat(number).st_mode):
                    os.dup2(nothing.fileno(), number, inheritable=False)
