"""Finds kernels that Numba compiles, where it is installed."""

from functools import cache
from importlib import import_module
from types import ModuleType


@cache
def compiled_kernels(room: str) -> ModuleType | None:
    """`compiled.py` of a room of this package; None without Numba. The first call compiles."""
    try:
        return import_module(f"nmt_cli.{room}.compiled")
    except (ImportError, OSError, RuntimeError):  # not there, not whole, or without room for what it compiles
        return None
