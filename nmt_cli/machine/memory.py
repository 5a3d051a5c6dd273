"""Memory: how much was held, and whether an error tells that there was none left."""

import resource
import sys

import torch


def out_of_memory(error: Exception) -> bool:
    """Whether it tells of memory that could not be had, on any device."""
    return isinstance(error, torch.OutOfMemoryError) or "can't allocate memory" in str(error)


def most_memory(device: torch.device) -> int:
    """Bytes of the device that this process has held at most; on a CPU, bytes of the machine's memory."""
    if device.type == "cuda":
        return torch.cuda.max_memory_reserved(device)
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024
