"""Memory of devices: the most that was held, and whether an error means that there was too little."""

import resource
import sys

import torch


def out_of_memory(error: Exception) -> bool:
    """Whether `error` means that some device, or the machine, had not enough memory."""
    # On a CPU it is a plain RuntimeError, which only its text tells from others.
    return isinstance(error, torch.OutOfMemoryError) or "can't allocate memory" in str(error)


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
