"""Memory of devices: the most that was held, and whether an error means that there was too little."""

import re
import resource
import sys

import torch

NO_MEMORY = re.compile(
    "out of memory|can't allocate memory|not enough memory|std::bad_alloc|STATUS_ALLOC_FAILED"
    "|could not create a memory|could not (create|execute) a primitive$"
)
"""What CUDA and Triton, PyTorch on Linux and Windows, C++, cuBLAS and cuDNN, and oneDNN say.

The last says more where it lacks not memory but a kernel. Triton's "out of resource" is not among them: what
a processor of a GPU lacks does not become more with smaller batches."""

LACKS = (RuntimeError, MemoryError)
"""The kinds of errors that may be `out_of_memory`."""


def out_of_memory(error: Exception) -> bool:
    """Whether it tells of memory that could not be had, on any device."""
    kinds = (torch.OutOfMemoryError, MemoryError)
    return isinstance(error, kinds) or NO_MEMORY.search(str(error)) is not None


def most_memory(device: torch.device) -> int:
    """The most bytes of a GPU's memory, or of the machine's for a CPU, that this process has held so far."""
    if has_own_memory(device):
        return torch.cuda.max_memory_reserved(device)
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    # macOS counts bytes here, Linux KiB.
    return most if sys.platform == "darwin" else most * 1024


def has_own_memory(device: torch.device) -> bool:
    """Whether a device has memory of its own, apart from the machine's.

    Then what fits there has to be found by trying, and copies to it are faster from pinned memory.
    """
    return device.type == "cuda"


def release_unused(device: torch.device) -> None:
    """Return memory that PyTorch holds for later use to the device, where it may be in pieces too small for a
    batch."""
    if has_own_memory(device):
        torch.cuda.empty_cache()
