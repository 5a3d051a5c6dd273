"""Memory: how much was held, whether an error tells that there was none left, and what a device has of it."""

import re
import resource
import sys

import torch

NO_MEMORY = re.compile(
    "can't allocate memory|std::bad_alloc|could not create a memory|could not (create|execute) a primitive$"
)
"""What PyTorch, C++ and oneDNN say; oneDNN says more where it lacks not memory but a kernel."""


def out_of_memory(error: Exception) -> bool:
    """Whether it tells of memory that could not be had, on any device."""
    kinds = (torch.OutOfMemoryError, MemoryError)
    return isinstance(error, kinds) or NO_MEMORY.search(str(error)) is not None


def most_memory(device: torch.device) -> int:
    """Bytes of the device that this process has held at most; on a CPU, bytes of the machine's memory."""
    if has_own_memory(device):
        return torch.cuda.max_memory_reserved(device)
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024


def has_own_memory(device: torch.device) -> bool:
    """Whether it computes in memory of its own, not the machine's.

    How much fits there is found by trying, and copies to it are faster from pinned memory.
    """
    return device.type == "cuda"


def release_unused(device: torch.device) -> None:
    """Give back what PyTorch keeps of the device's memory for later, perhaps in pieces too small to use."""
    if has_own_memory(device):
        torch.cuda.empty_cache()
