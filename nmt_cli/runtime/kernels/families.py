"""Families of Triton kernels, and those that PyTorch's operations replace in this process."""

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch

FAMILIES = ("attention", "loss", "pointwise")

refused: set[str] = set()
"""Families that are not used, and "torch.compile" if it cannot be used."""


def has_kernels(device: torch.device) -> bool:
    """Return whether our Triton kernels are made for the type of a device: True for a GPU."""
    return device.type == "cuda"


def usable(family: str, device: torch.device) -> bool:
    """Return whether to use the kernels of a family on a device: on a GPU, unless they are `refused`."""
    return has_kernels(device) and family not in refused


@contextmanager
def without(families: Iterable[str]) -> Iterator[None]:
    """Add families to `refused` for the block."""
    before = {*refused}
    refused.update(families)
    try:
        yield
    finally:
        refused.intersection_update(before)


def plain_only() -> bool:
    """Return whether the user wants none of our kernels on a GPU, by NMT_KERNELS=plain in the environment."""
    return os.environ.get("NMT_KERNELS") == "plain"
