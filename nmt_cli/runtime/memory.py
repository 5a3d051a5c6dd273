"""Memory of devices: peak use, and errors caused by a lack of memory."""

import ctypes
import gc
import re
import resource
import sys
from contextlib import suppress
from itertools import chain
from pathlib import Path

import torch

NO_MEMORY = re.compile(
    "out of memory|can't allocate memory|not enough memory|std::bad_alloc|STATUS_ALLOC_FAILED"
    "|could not create a memory|could not (create|execute) a primitive$"
)
"""Error texts of CUDA and Triton, PyTorch on Linux and Windows, C++, cuBLAS and cuDNN, and oneDNN.

oneDNN adds more text if it lacks a kernel instead of memory. Triton's "out of resource" does not match. It
names a limit of a GPU's processors, which smaller batches do not avoid.
"""

MEMORY_ERRORS = (RuntimeError, MemoryError)
"""Types of errors that `out_of_memory` may recognise."""


def out_of_memory(error: Exception) -> bool:
    """Return whether the type or the text of an error shows a lack of memory on any device."""
    kinds = (torch.OutOfMemoryError, MemoryError)
    return isinstance(error, kinds) or NO_MEMORY.search(str(error)) is not None


def peak_memory(device: torch.device) -> int:
    """Return this process's peak memory in bytes: main memory, or what PyTorch reserved on a GPU."""
    if has_own_memory(device):
        return torch.cuda.max_memory_reserved(device)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    # macOS counts bytes, Linux KiB.
    return peak if sys.platform == "darwin" else peak * 1024


def has_own_memory(device: torch.device) -> bool:
    """Return whether a device has its own memory: True for a GPU. Pinned memory makes copies to it faster."""
    return device.type == "cuda"


def release_unused(device: torch.device) -> None:
    """Free GPU memory that PyTorch keeps for later use, often in small fragments. For a CPU, do nothing."""
    if has_own_memory(device):
        torch.cuda.empty_cache()


def resident_memory() -> int:
    """Return the main memory of this process and its children, in bytes, or 0 without Linux's `/proc`.

    A page that processes share counts once.
    """
    kilobytes = 0
    with suppress(OSError):
        children = [path.read_text().split() for path in Path("/proc/self/task").glob("*/children")]
        for number in ["self", *chain.from_iterable(children)]:
            with suppress(OSError):  # the child has ended
                rows = Path(f"/proc/{number}/smaps_rollup").read_text().splitlines()
                kilobytes += sum(int(row.split()[1]) for row in rows if row.startswith("Pss:"))
    return kilobytes * 1024


def return_free_memory() -> None:
    """Collect garbage. Then return free main memory to the system, which glibc otherwise keeps."""
    gc.collect()
    with suppress(AttributeError, OSError):  # another C library
        ctypes.CDLL(None).malloc_trim(0)
