"""The workers of a loaded model: one for each core or GPU, all on one queue."""

import os
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from functools import partial

from nmt_cli.decoding.lines.queue import Closed, RequestQueue
from nmt_cli.decoding.lines.worker import NextTurn, translate_in_thread
from nmt_cli.decoding.lines.worker_process import worker_process
from nmt_cli.machine.devices import can_be_forked
from nmt_cli.model.transformer import Transformer

_STARTING = threading.Lock()
"""A process forked while another's pipe is made would hold it open, and the other's death be unnoticed."""


class Workers:
    """Threads that translate what is in `queue`, some by a process of their own, until they are closed."""

    def __init__(self, models: Sequence[Sequence[Transformer]]) -> None:
        """For each worker the models it translates with, which they may share.

        On Linux, several workers on a CPU have a process each.
        """
        self.queue = RequestQueue(len(models))
        self._owner = os.getpid()
        self._threads: list[threading.Thread] = []
        with _STARTING, ExitStack() as stack:
            forked = len(models) > 1 and can_be_forked(models[0][0].device)
            self.processes = [stack.enter_context(worker_process(some)) for some in models if forked]
            stack.callback(self._join)  # only then is it safe to close the pipes, on which the threads wait
            for process in self.processes:
                stack.callback(process.kill)
            stack.callback(self.queue.close)
            for number, some in enumerate(models):
                here = partial(translate_in_thread, some)
                self._start(self.processes[number].translate_turns if forked else here)
            self._stack = stack.pop_all()

    @property
    def usable(self) -> bool:
        """Not closed, not failed, and not of the process that this one was forked from."""
        return not self.queue.closed and os.getpid() == self._owner

    def close(self) -> None:
        """End the workers, whatever they are at."""
        if os.getpid() == self._owner:
            self._stack.close()

    def _start(self, translate: Callable[[NextTurn], None]) -> None:
        # A daemon: Python waits for other threads at its end before anybody could close these.
        self._threads.append(threading.Thread(target=_work, args=(self.queue, translate), daemon=True))
        self._threads[-1].start()

    def _join(self) -> None:
        for thread in self._threads:
            # This one may be among them, as it may collect garbage; one that was not started is not alive.
            if thread.is_alive() and thread is not threading.current_thread():
                thread.join()


def _work(queue: RequestQueue, translate: Callable[[NextTurn], None]) -> None:
    if queue.closed:  # the start of this thread was interrupted, and Python may be at its end by now
        return
    try:
        with suppress(Closed):
            translate(queue.turn)
    except BaseException as error:
        queue.close(error)
