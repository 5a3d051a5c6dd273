"""Cores and threads of this process. Torch is imported by those who compute, not by those who count cores."""

import os
from collections.abc import Iterator
from contextlib import contextmanager


def available_cores() -> int:
    """The cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """While it lasts, PyTorch computes in `count` threads; then in as many as before.

    It is a setting of the whole process, so two that last at once must want the same.
    """
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
