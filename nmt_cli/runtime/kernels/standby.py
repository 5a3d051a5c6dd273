"""Helper threads for work that would be over before a sleeping thread wakes up, in less than 1 ms."""

import os
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from nmt_cli.runtime.kernels.loading import compiled_kernels

TURNS = 1_000_000
"""Turns of a busy loop before a helper goes to sleep: some milliseconds, in which the next step begins."""


class Helper:
    """A thread that calls functions. Between calls, the thread stays awake for a while."""

    def __init__(self, wait: Callable[[NDArray[np.int64], int, int], bool]) -> None:
        """Start the thread. `wait` is `compiled.wait`, which releases Python's lock."""
        self._wait, self._calls = wait, np.zeros(1, np.int64)
        self._work: Callable[[], object] = lambda: None
        self._awake, self._wake = True, threading.Semaphore(0)
        threading.Thread(target=self._stand_by, name="nmt-helper", daemon=True).start()

    def call(self, work: Callable[[], object]) -> None:
        """Let the thread call `work`, and do not wait. A busy thread later calls only the newest `work`."""
        self._work = work
        self._calls[0] += 1
        if not self._awake:
            self._awake = True
            self._wake.release()

    def _stand_by(self) -> None:
        """Call each new `work`, forever. Sleep after `TURNS` turns without a call. Ignore `MemoryError`."""
        seen = 0
        while True:
            if self._wait(self._calls, seen, TURNS):
                seen = int(self._calls[0])
                with suppress(MemoryError):  # the other threads do all the work
                    self._work()
                continue
            self._awake = False
            if self._calls[0] == seen:  # otherwise a call came just before `_awake` changed
                self._wake.acquire()
            self._awake = True


def call(count: int) -> None:
    """Let up to `count` helper threads (0 is none) assist this thread in `beside`, until the next `call`."""
    _mine.helpers = _helpers(os.getpid(), count) if count else []


def beside(work: Callable[[], object]) -> None:
    """Call `work` here and, at the same time, in helper threads, which may be late or never start.

    Do not wait for them. Threads must take work from a common counter. `work` must release Python's lock.
    """
    for helper in getattr(_mine, "helpers", ()):
        helper.call(work)
    work()


def keeping(owner: object, work: Callable[..., object], *arguments: object) -> None:
    """Call `work` with `arguments`, which may have addresses of memory that `owner` holds.

    A thread that runs this call keeps a reference to `owner`, so the memory stays valid.
    """
    work(*arguments)


_mine = threading.local()


@lru_cache(maxsize=1)
def _helpers(process: int, count: int) -> list[Helper]:
    """Start up to `count` helpers, less if threads are limited, none without Numba. Cached by `process`."""
    kernels, helpers = compiled_kernels("runtime.kernels"), list[Helper]()
    with suppress(RuntimeError):  # the system allows no more threads
        while kernels and len(helpers) < count:
            helpers.append(Helper(kernels.wait))
    return helpers
