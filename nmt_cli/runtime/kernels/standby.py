"""Threads that stand by for work of less than a millisecond: it is over before one that sleeps is awake."""

import os
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from nmt_cli.runtime.kernels.loading import compiled_kernels

TURNS = 1_000_000
"""Of a loop, before a helper goes to sleep: some milliseconds, in which the next step of a search begins."""


class Helper:
    """A thread that does what it is told to, and stays awake for a while to be told more."""

    def __init__(self, wait: Callable[[NDArray[np.int64], int, int], bool]) -> None:
        """`wait(told, seen, turns)` waits until the number in `told` is more than `seen`, or gives up."""
        self._wait, self._told = wait, np.zeros(1, np.int64)
        self._work: Callable[[], object] = lambda: None
        self._awake, self._wake = True, threading.Semaphore(0)
        threading.Thread(target=self._stand_by, name="nmt-helper", daemon=True).start()

    def tell(self, work: Callable[[], object]) -> None:
        """Let it call `work`, unless it is still busy when it is told the next."""
        self._work = work
        self._told[0] += 1
        if not self._awake:
            self._awake = True
            self._wake.release()

    def _stand_by(self) -> None:
        seen = 0
        while True:
            if self._wait(self._told, seen, TURNS):
                seen = int(self._told[0])
                with suppress(MemoryError):  # the others do without
                    self._work()
                continue
            self._awake = False
            if self._told[0] == seen:  # or else it was told just before it said that it sleeps
                self._wake.acquire()
            self._awake = True


def call(count: int) -> None:
    """Let so many threads help the calling one, until it calls others."""
    _mine.helpers = _helpers(os.getpid(), count) if count else []


def beside(work: Callable[[], object]) -> None:
    """Call `work` here and, at the same time, in the helper threads of the calling thread.

    Helpers may start and end late, or not at all. So `work` must be work that threads take from each other,
    and it must release Python's lock.
    """
    for helper in getattr(_mine, "helpers", ()):
        helper.tell(work)
    work()


def keeping(keeper: object, work: Callable[..., object], *given: object) -> None:
    """Call `work`, which is told where something is that `keeper` keeps there, also while a thread that came
    late may still look."""
    work(*given)


_mine = threading.local()


@lru_cache(maxsize=1)
def _helpers(process: int, count: int) -> list[Helper]:
    """A child has none of the threads of the process that it was forked from."""
    kernels, helpers = compiled_kernels("runtime.kernels"), list[Helper]()
    with suppress(RuntimeError):  # no more threads may be started; it goes without them
        while kernels and len(helpers) < count:
            helpers.append(Helper(kernels.wait))
    return helpers
