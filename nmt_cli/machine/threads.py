"""Cores of this process, and PyTorch's number of threads for one thread of Python at a time.

`torch.set_num_threads` sets two numbers: that of the calling thread, and that which threads get when they
first use PyTorch. A library may change the first; the second belongs to the program. Torch is imported by
those who compute, not by those who count cores.
"""

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

Result = TypeVar("Result")


def available_cores() -> int:
    """The cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def set_own_threads(count: int) -> None:
    """Compute with `count` threads in the calling thread of Python, and in no other."""
    import torch

    of_new_threads = _in_new_thread(torch.get_num_threads)
    torch.get_num_threads()  # the first question makes a thread begin with the number of new ones
    torch.set_num_threads(count)
    _in_new_thread(lambda: torch.set_num_threads(of_new_threads))


@contextmanager
def kept_threads() -> Iterator[None]:
    """At the end, give the calling thread and new ones the numbers they had at the beginning."""
    import torch

    own, of_new_threads = torch.get_num_threads(), _in_new_thread(torch.get_num_threads)
    try:
        yield
    finally:
        torch.set_num_threads(own)
        _in_new_thread(lambda: torch.set_num_threads(of_new_threads))


def _in_new_thread(work: Callable[[], Result]) -> Result:
    results: list[Result] = []
    thread = threading.Thread(target=lambda: results.append(work()))
    thread.start()
    thread.join()
    return results[0]
