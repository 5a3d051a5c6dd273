"""The workers of a loaded model: one for each core or GPU, all on one queue."""

import os
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from functools import partial

from nmt_cli.model.transformer import Transformer
from nmt_cli.runtime.devices import can_be_forked
from nmt_cli.runtime.threads import available_cores, join_wholly
from nmt_cli.translation.workers.queue import Closed, RequestQueue
from nmt_cli.translation.workers.worker import NextTurn, translate_in_thread
from nmt_cli.translation.workers.worker_process import STARTING, WorkerProcess

MOST_HELPING = 4
"""Threads for a line that comes alone: each worker starts its own when it first has one, and more would be in
each other's way."""


class Workers:
    """Threads that translate what is in `queue`, each itself or through a worker process, until closed."""

    def __init__(self, models: Sequence[Sequence[Transformer]]) -> None:
        """`models` are those that each worker translates with; workers may share them.

        Where there are several on a CPU, and on Linux, each is a process.
        """
        self.queue = RequestQueue(len(models))
        self._owner = os.getpid()
        self._threads: list[threading.Thread] = []
        with STARTING, ExitStack() as stack:
            forked = len(models) > 1 and can_be_forked(models[0][0].device)
            self.processes: list[WorkerProcess] = []
            threads = min(len(models), available_cores(), MOST_HELPING)
            for some in models if forked else ():
                self.processes.append(WorkerProcess(some, self.queue.counts, threads))
                stack.callback(self.processes[-1].close)
            stack.callback(self._join)  # undone before the pipes are closed, on which the threads wait
            for process in self.processes:
                stack.callback(process.kill)
            stack.callback(self.queue.close)
            for number, some in enumerate(models):
                here = partial(translate_in_thread, some)
                self._start(self.processes[number].translate_turns if forked else here)
            self._stack = stack.pop_all()

    @property
    def usable(self) -> bool:
        """Whether they still translate: not closed, not failed, and started by this very process, not before
        a fork."""
        return not self.queue.closed and os.getpid() == self._owner

    @property
    def restarts(self) -> int:
        """How many worker processes died and were replaced."""
        return sum(process.restarts for process in self.processes)

    def close(self) -> None:
        """End the workers, and whatever they are translating; without effect in a forked copy of the
        process."""
        if os.getpid() == self._owner:
            self._stack.close()

    def _start(self, translate: Callable[[NextTurn], None]) -> None:
        # A daemon: at its end Python waits for other threads before it runs anything that could close these.
        self._threads.append(threading.Thread(target=_work, args=(self.queue, translate), daemon=True))
        self._threads[-1].start()

    def _join(self) -> None:
        for thread in self._threads:
            # Closing may run in one of them, where the garbage collector happens to run; a thread can't join
            # itself. Nor can one be joined that was not started.
            if thread.ident and thread is not threading.current_thread():
                join_wholly(thread)  # others may be forked next


def _work(queue: RequestQueue, translate: Callable[[NextTurn], None]) -> None:
    if queue.closed:  # closed before this thread got to run: Python may be ending by now
        return
    try:
        with suppress(Closed):
            translate(queue.turn)
    except BaseException as error:
        # Whatever it is: callers would wait for ever for what this worker has taken.
        queue.close(error)
