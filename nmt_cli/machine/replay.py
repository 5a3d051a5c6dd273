"""Launches on a GPU, recorded once and asked for again in one go; not yet run on a device."""

from collections.abc import Callable
from typing import Any

import torch

Work = Callable[[], None]


class Recorder:
    """Makes of a function what repeats all that it asked of the GPU, on the same memory.

    What is recorded is not done. All recordings share the memory between their inputs and their results, so
    they must be repeated one after another.
    """

    def __init__(self) -> None:
        self._pool: Any = None  # PyTorch names no type for it

    def __call__(self, work: Work) -> Work:
        """Call `work`, and return what repeats it; raises `RuntimeError` where it waits for the GPU."""
        self._pool = self._pool or torch.cuda.graph_pool_handle()
        graph = torch.cuda.CUDAGraph()
        # Other threads may pin memory or wait for copies meanwhile, as the one that makes batches does.
        with torch.cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"):
            work()
        return graph.replay
