"""Work shared among processes, with results in the order of the tasks."""

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.connection import wait
from typing import TypeVar

from nmt_cli.errors import UserError

Task = TypeVar("Task")
Result = TypeVar("Result")

Progress = Callable[[str, int, int], None]
"""Told the stage, what is done of it, and the whole; 0 where that is not known."""

AHEAD = 3
"""Tasks under way for each worker: enough to keep it busy, few enough to keep memory flat."""


def available_cores() -> int:
    """The cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def in_order(work: Callable[[Task], Result], tasks: Iterable[Task], workers: int) -> Iterator[Result]:
    """`work` done on each task by `workers` processes; one worker means this very process.

    What a task raises is raised here, when its turn comes.
    """
    if workers == 1:
        yield from map(work, tasks)
        return
    pending: deque[Future[Result]] = deque()
    pool = ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), _start_worker)
    try:
        for task in tasks:
            pending.append(pool.submit(work, task))
            if len(pending) >= AHEAD * workers:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    except BrokenProcessPool as error:
        raise UserError(
            "a worker process was killed, most likely for want of memory; try again with fewer --workers."
        ) from error
    finally:
        pool.shutdown(cancel_futures=True)


def _start_worker() -> None:
    """Leave Ctrl-C to the parent, and end when the parent ends, even if it was killed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    if parent:
        threading.Thread(target=_end_with, args=(parent.sentinel,), daemon=True).start()


def _end_with(sentinel: int) -> None:
    wait([sentinel])
    os._exit(1)
