"""The cores this process may use, and how many threads PyTorch computes with, for each thread of Python.

`torch.set_num_threads` sets two numbers: that of the calling thread, and the one that other threads get when
they first use PyTorch. A library may change the first; the second belongs to the program. PyTorch is imported
only inside of functions, as counting cores does not need it.
"""

import os
import re
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import TypeVar

Result = TypeVar("Result")

MOST_SECONDS_TO_END = 10.0
"""It takes far less than a millisecond, unless the machine is busy."""


def available_cores() -> int:
    """The cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def default_threads(processes: int) -> int:
    """How many threads so many processes on this machine compute with together, where nobody says.

    All cores; fewer where OMP_NUM_THREADS asks each process for that. The 1 of several does not count, as
    torchrun says so by itself.
    """
    asked = os.environ.get("OMP_NUM_THREADS", "")
    cores = available_cores()
    heard = re.fullmatch("[1-9][0-9]*", asked) and (processes == 1 or asked != "1")
    return min(cores, int(asked) * processes) if heard else cores


def set_own_threads(count: int) -> None:
    """Compute with `count` threads in the calling thread of Python, and in no other."""
    import torch

    of_new_threads = _in_new_thread(torch.get_num_threads)
    torch.get_num_threads()  # the first question makes a thread begin with the number of new ones
    torch.set_num_threads(count)
    # The line above has changed the number for new threads too; set by a thread of its own, it leaves ours
    # alone.
    _in_new_thread(lambda: torch.set_num_threads(of_new_threads))


@contextmanager
def kept_threads() -> Iterator[None]:
    """After the block, the calling thread and new threads have the numbers of threads they had before it."""
    import torch

    own, of_new_threads = torch.get_num_threads(), _in_new_thread(torch.get_num_threads)
    try:
        yield
    finally:
        torch.set_num_threads(own)
        _in_new_thread(lambda: torch.set_num_threads(of_new_threads))


def in_threads(work: Callable[[int, int], object], count: int) -> None:
    """Call `work(first, behind)` for parts of `count` things, in as many threads as PyTorch computes with.

    It is for work that lets go of Python's lock.
    """
    import torch

    threads = max(min(torch.get_num_threads(), count), 1)
    bounds = [count * thread // threads for thread in range(threads + 1)]
    own, *others = pairwise(bounds)
    begun = [_pool(os.getpid(), threads - 1).submit(work, *part) for part in others]
    work(*own)
    for part in begun:
        part.result()


@lru_cache(maxsize=1)
def _pool(process: int, threads: int) -> ThreadPoolExecutor:
    """A child has none of the threads of the process that it was forked from."""
    return ThreadPoolExecutor(threads, thread_name_prefix="nmt-kernels")


def join_wholly(thread: threading.Thread) -> None:
    """Wait until a thread has ended, on Linux also for the system.

    `join` returns once Python is done with it, but then MKL gives back what it kept for the thread. Who forks
    just then gets a copy of MKL's lock that nobody will ever open, and products that wait for it.
    """
    thread.join()
    task, until = Path(f"/proc/self/task/{thread.native_id}"), time.monotonic() + MOST_SECONDS_TO_END
    while task.exists() and time.monotonic() < until:
        time.sleep(0.0005)


def _in_new_thread(work: Callable[[], Result]) -> Result:
    results: list[Result] = []
    thread = threading.Thread(target=lambda: results.append(work()))
    thread.start()
    thread.join()
    return results[0]
