"""Load modules and models without interruptions by Python's garbage collector."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def nothing_to_collect() -> Iterator[None]:
    """Pause garbage collection in a block that creates only permanent objects, such as modules and models.

    At its end, all existing objects are excluded from later collections. The pause saves 0.20 s of the start
    of `nmt translate` on a CPU: 1.87 s of processor time instead of 2.07 s, medians of nine runs.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
