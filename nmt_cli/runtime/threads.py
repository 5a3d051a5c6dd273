"""Cores that this process may use, and threads that PyTorch computes with.

`torch.set_num_threads` sets two numbers. The first is used by the calling thread. The second is used by
threads that use PyTorch later for the first time. A library may change the first one only. PyTorch is
imported inside of functions, as counting cores does not need it.
"""

import math
import os
import re
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import TypeVar

Result = TypeVar("Result")

MAX_SECONDS_TO_END = 10.0
"""Time limit of `join_wholly`. It needs less than a millisecond, unless the machine is busy."""


CGROUP, CGROUPS = Path("/proc/self/cgroup"), Path("/sys/fs/cgroup")
"""The control groups of this process, and the folder of all groups. Linux alone has them. A group may limit
the time on processors: that of a container, of a pod, or of a service of systemd."""


def available_cores() -> int:
    """Return the number of cores that this process may use, at least 1.

    A limit of a control group counts as that number of cores, rounded up.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min([cores, *_group_limits()]))


def _group_limits() -> Iterator[int]:
    """Yield the cores that each control group of this process allows, if it has a limit."""
    with suppress(OSError, ValueError):
        # A line is "0::/a/b" in version 2, where "a" may have a limit, too. A container sees its own group as
        # "/".
        lines = CGROUP.read_text(encoding="utf-8").splitlines()
        own = next((Path(line[4:]) for line in lines if line.startswith("0::/")), Path())
        for group in (own, *own.parents):
            with suppress(OSError, ValueError):
                quota, period = (CGROUPS / group / "cpu.max").read_text(encoding="utf-8").split()
                yield math.ceil(int(quota) / int(period))  # no limit is "max", a `ValueError`
    with suppress(OSError, ValueError):  # version 1
        quota, period = (
            (CGROUPS / "cpu" / name).read_text(encoding="utf-8")
            for name in ("cpu.cfs_quota_us", "cpu.cfs_period_us")
        )
        if int(quota) > 0:  # -1 without a limit
            yield math.ceil(int(quota) / int(period))


def default_threads(processes: int) -> int:
    """Return the default number of threads of all `processes` together: the number of cores.

    A valid OMP_NUM_THREADS limits the threads of each process. With several processes, OMP_NUM_THREADS=1 is
    ignored, because torchrun sets it without being asked.
    """
    limit = os.environ.get("OMP_NUM_THREADS", "")
    cores = available_cores()
    is_valid = re.fullmatch("[1-9][0-9]*", limit) and (processes == 1 or limit != "1")
    return min(cores, int(limit) * processes) if is_valid else cores


def set_own_threads(count: int) -> None:
    """Let PyTorch compute with `count` threads in the calling thread of Python, and in no other."""
    import torch

    of_new_threads = _in_new_thread(torch.get_num_threads)
    torch.get_num_threads()  # the first call gives a thread the number of new threads
    torch.set_num_threads(count)
    # This also set the number of new threads. Another thread can restore it without changing this thread's.
    _in_new_thread(lambda: torch.set_num_threads(of_new_threads))


@contextmanager
def restored_threads() -> Iterator[None]:
    """After the block, restore PyTorch's numbers of threads of the calling thread and of new threads."""
    import torch

    own, of_new_threads = torch.get_num_threads(), _in_new_thread(torch.get_num_threads)
    try:
        yield
    finally:
        torch.set_num_threads(own)
        _in_new_thread(lambda: torch.set_num_threads(of_new_threads))


def in_threads(work: Callable[[int, int], object], count: int) -> None:
    """Call `work(first, end)` for consecutive parts of `range(count)` in parallel, and wait for all.

    There are as many parts as PyTorch has threads, but at most `count`. Without anything to do, there is one
    call `work(0, 0)`. `work` must release Python's lock, or nothing is parallel. If a part fails, its error
    is raised, perhaps while other parts still run.
    """
    import torch

    threads = max(min(torch.get_num_threads(), count), 1)
    bounds = [count * thread // threads for thread in range(threads + 1)]
    own_part, *parts = pairwise(bounds)
    futures = [_pool(os.getpid(), threads - 1).submit(work, *part) for part in parts]
    work(*own_part)
    for future in futures:
        future.result()


@lru_cache(maxsize=1)
def _pool(process: int, threads: int) -> ThreadPoolExecutor:
    """Return a pool of threads. `process` is the id of this process, as a fork needs a new pool."""
    return ThreadPoolExecutor(threads, thread_name_prefix="nmt-kernels")


def join_wholly(thread: threading.Thread) -> None:
    """Wait until Python has ended a thread, and under Linux until the system has, up to `MAX_SECONDS_TO_END`.

    When `join` returns, MKL still frees the thread's memory. A process forked then would get a copy of a
    locked lock of MKL, and wait forever in its next product.
    """
    thread.join()
    task, deadline = Path(f"/proc/self/task/{thread.native_id}"), time.monotonic() + MAX_SECONDS_TO_END
    while task.exists() and time.monotonic() < deadline:
        time.sleep(0.0005)


def _in_new_thread(work: Callable[[], Result]) -> Result:
    """Call `work` in a new thread, and return its result."""
    with ThreadPoolExecutor(1) as executor:
        return executor.submit(work).result()
