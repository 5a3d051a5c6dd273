"""PyTorch, loaded sooner than by a plain `import torch`."""

import sys
from importlib.metadata import PackageNotFoundError, version
from types import ModuleType

LEFT_OUT = "torch._meta_registrations"
"""What tensors without memory compute in Python, for compilers and for no one who translates on a CPU. With
what it loads, a fifth of the time of `import torch`."""

KNOWN = ("2.13.",)
"""Versions of PyTorch that do well without it, and take it in later just the same."""


def load_for_cpu() -> None:
    """Load PyTorch for a program that computes on a CPU and compiles nothing; whole where there is a GPU.

    What is left out is there for whoever imports it.
    """
    if "torch" in sys.modules or not _known():
        return
    sys.modules[LEFT_OUT] = ModuleType(LEFT_OUT)
    try:
        import torch
    finally:
        del sys.modules[LEFT_OUT]
    vars(torch).pop(LEFT_OUT.partition(".")[2], None)
    if torch.cuda.is_available():
        import torch._meta_registrations


def _known() -> bool:
    try:
        return version("torch").startswith(KNOWN)
    except PackageNotFoundError:  # built by hand
        return False
