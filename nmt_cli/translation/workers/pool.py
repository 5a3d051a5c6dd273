"""The workers of a loaded model: one for each core or GPU, all on one queue."""

import os
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from functools import partial

from nmt_cli.decoding.batch import Queue
from nmt_cli.runtime.processes import StartMethod
from nmt_cli.runtime.threads import available_cores, join_wholly, set_own_threads
from nmt_cli.translation.workers.queue import Closed, RequestQueue
from nmt_cli.translation.workers.worker import Load, NextSearch, translate_turns
from nmt_cli.translation.workers.worker_process import STARTING, WorkerProcess

MAX_HELPERS = 4
"""Maximum number of threads for a single line. Each worker starts its own threads, and more would compete."""


class Workers:
    """The worker threads of a model, all on one queue. Each translates, or serves a worker process."""

    def __init__(self, loads: Sequence[Load], start: StartMethod | None = None) -> None:
        """Start a worker for each of `loads`, which return its models.

        Several workers are processes, which `start` says how to start. With `start` None, and for a single
        worker, they are threads. Raise `UserError` if the system refuses a process.
        """
        self.queue = RequestQueue(len(loads))
        self._owner = os.getpid()
        self._threads: list[threading.Thread] = []
        with STARTING, ExitStack() as stack:
            self.processes: list[WorkerProcess] = []
            threads = min(len(loads), available_cores(), MAX_HELPERS) if start == "fork" else 1
            # Threads would wait for Python's lock. With processes, a small model is a quarter faster on two
            # cores.
            if start and len(loads) > 1:
                for load in loads:
                    process = WorkerProcess(load, start, self.queue.counts, self.queue.lost, threads)
                    self.processes.append(process)
                    stack.callback(self.processes[-1].close)
            stack.callback(self._join)  # undone before the pipes are closed, on which the threads wait
            for process in self.processes:
                stack.callback(process.kill)
            stack.callback(self.queue.close)
            works: list[Callable[[NextSearch, Queue], None]]
            works = [process.translate_turns for process in self.processes]
            for work in works or [partial(self._translate_here, load) for load in loads]:
                # A daemon: Python ends other threads before it runs anything that could close the workers.
                self._threads.append(threading.Thread(target=_work, args=(self.queue, work), daemon=True))
                self._threads[-1].start()
            self._stack = stack.pop_all()

    @property
    def usable(self) -> bool:
        """True while the workers translate: not closed or failed, and not in a forked copy of the process."""
        return not self.queue.closed and os.getpid() == self._owner

    @property
    def restarts(self) -> int:
        """The number of worker processes that died and were replaced."""
        return sum(process.restarts for process in self.processes)

    @property
    def last_death(self) -> str:
        """Why a worker process died, the latest of one of them, or "" if none has died."""
        return next((process.last_death for process in self.processes if process.last_death), "")

    def close(self) -> None:
        """End the workers and drop unfinished sentences. In a forked copy of the process, do nothing."""
        if os.getpid() == self._owner:
            self._stack.close()

    def close_at_any_moment(self) -> None:
        """Close the workers of a model that was garbage-collected.

        The collector may interrupt any thread at any moment, also one that holds the lock of the queue.
        """
        if os.getpid() != self._owner:  # where another thread may have held the lock at the fork, forever
            return
        if self.queue.can_be_locked():
            self.close()
        else:
            threading.Thread(target=self.close).start()

    def _translate_here(self, load: Load, next_search: NextSearch, queue: Queue) -> None:
        """Translate in the calling thread, with one thread of PyTorch."""
        set_own_threads(1)
        translate_turns(load, next_search, queue, self.queue.counts)

    def _join(self) -> None:
        """Wait until the worker threads have ended, except the calling thread and unstarted ones."""
        for thread in self._threads:
            # The garbage collector may close the workers in one of their threads, which cannot join itself. A
            # thread that was not started cannot be joined either.
            if thread.ident and thread is not threading.current_thread():
                join_wholly(thread)  # the process may be forked next


def _work(queue: RequestQueue, translate: Callable[[NextSearch, Queue], None]) -> None:
    """Translate the sentences of the queue until it closes. An error closes it."""
    if queue.closed:  # before this thread ran, so Python may be ending
        return
    try:
        with suppress(Closed):
            translate(queue.next_search, queue)
    except BaseException as error:
        # Any error: otherwise callers would wait forever for the sentences of this worker.
        queue.close(error)
