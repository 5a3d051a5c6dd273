"""Work shared among processes, with results in the order of the tasks."""

import multiprocessing
import os
import pickle
import signal
import threading
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import chain, islice
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, TypeVar

from nmt_cli.errors import UserError

Task = TypeVar("Task")
Result = TypeVar("Result")

Progress = Callable[[str, int, int], None]
"""Told the stage, what is done of it, and the whole; 0 where that is not known."""


def in_order(work: Callable[[Task], Result], tasks: Iterable[Task], workers: int) -> Iterator[Result]:
    """`work` done on each task by `workers` processes; one worker means this very process.

    What a task raises is raised here, when its turn comes. The workers take turns, and each has one task at a
    time, so no more than one block for each of them is in memory.
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
    """Processes that stay. What is yielded does tasks as `in_order` does, all before it gets others."""
    with ExitStack() as stack:
        hired = [stack.enter_context(_worker(work)) for _ in range(workers)]
        yield lambda tasks: _shared(hired, iter(tasks))


def _shared(workers: Sequence[Connection], waiting: Iterator[Any]) -> Iterator[Any]:
    busy = deque[Connection]()
    for worker, task in zip(workers, waiting, strict=False):
        _send(worker, task)
        busy.append(worker)
    while busy:
        worker = busy.popleft()
        result = _receive(worker)
        for task in islice(waiting, 1):
            _send(worker, task)
            busy.append(worker)
        yield result


def in_child(work: Callable[[Task], Result], task: Task) -> Result:
    """`work` done on `task` by a process of its own.

    A library that computes for long would keep this one from hearing Ctrl-C, and keep its memory.
    """
    with _worker(work) as worker:
        _send(worker, task)
        result: Result = _receive(worker)
        return result


@contextmanager
def _worker(work: Callable[[Any], Any]) -> Iterator[Connection]:
    """A process that does `work` on what is sent, and sends back the result; killed at the end."""
    resource_tracker.ensure_running()  # starting it later would let interrupts in again
    spawn = multiprocessing.get_context("spawn")
    ours, theirs = spawn.Pipe()
    with child(spawn.Process(target=_serve, args=(work, theirs), daemon=True), ours, theirs):
        yield ours


@contextmanager
def child(process: BaseProcess, ours: Connection, theirs: Connection) -> Iterator[None]:
    """Have `process` at work; it is killed at the end. The connections are the ends of a pipe to it."""
    owner = os.getpid()
    try:
        with _signals_held():
            process.start()
        # With their end open here too, we would wait for a dead process for ever.
        theirs.close()
        yield
    finally:
        if process.pid and os.getpid() == owner:  # a copy of this one, made by os.fork, is not its parent
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
    """`error` with its traceback, or its text where it would not survive the way to another process."""
    error.add_note(traceback.format_exc())
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error


def obey_parent() -> None:
    """Let this process end in silence: when it is told to, and with its parent, even if that is killed."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    if parent := multiprocessing.parent_process():
        threading.Thread(target=_end_with, args=(parent.sentinel,), daemon=True).start()


def _end_with(sentinel: int) -> None:
    wait([sentinel])
    os._exit(1)


@contextmanager
def _signals_held() -> Iterator[None]:
    """Keep signals waiting while a process is started, which inherits that: Ctrl-C is its parent's affair."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
