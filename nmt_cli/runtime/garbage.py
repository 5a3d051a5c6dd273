"""When Python looks for garbage that holds on to itself."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def nothing_to_collect() -> Iterator[None]:
    """A block that makes only what stays, such as modules and models: no garbage is looked for within, and
    what there is at its end is never looked through again.

    Looking through it would take a third of the time that PyTorch and Numba need to load.
    """
    before = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if before:
            gc.enable()
