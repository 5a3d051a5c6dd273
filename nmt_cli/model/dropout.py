"""Dropout with few random numbers."""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

LEVELS = 1 << 16
"""Number of values of the 16 random bits of an element."""

SEEDS = 1 << 62
LOWEST_INT64 = -(1 << 63)


def dropout(x: Tensor, probability: float, training: bool) -> Tensor:
    """In training, drop elements with this probability and scale up the rest. Otherwise, return `x`."""
    if not training or not probability:
        return x
    if x.device.type == "cpu" and not torch.compiler.is_compiling():
        dropped: Tensor = _Dropout.apply(x, probability)  # type: ignore[no-untyped-call]  # untyped in PyTorch
        return dropped
    return F.dropout(x, probability)


def dropout_seed(like: Tensor) -> Tensor:
    """Return a random int64 [] for a dropout mask, on the device of `like`. Do not wait for the device."""
    return torch.randint(SEEDS, (), device=like.device)


class _Dropout(torch.autograd.Function):
    """Dropout on the CPU with 16 random bits per element. PyTorch draws 64 bits for each, in sequence."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, probability: float) -> Tensor:
        """Return `x` times random factors: 0 or 1 / (1 - probability)."""
        # From the lowest int64 on, all 64 bits are random.
        draws = torch.empty((x.numel() + 3) // 4, dtype=torch.int64).random_(LOWEST_INT64, None)
        bits = draws.view(torch.int16)[: x.numel()].view(x.shape)
        # Some elements are always kept, as they are scaled by 1 / (1 - probability).
        dropped_levels = min(round(probability * LEVELS), LEVELS - 1)
        # int16 begins at -LEVELS / 2.
        factors = torch.ge(
            bits, dropped_levels - LEVELS // 2, out=torch.empty_like(x, memory_format=torch.contiguous_format)
        )
        factors.mul_(LEVELS / (LEVELS - dropped_levels))
        ctx.save_for_backward(factors)
        return x * factors

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        (factors,) = ctx.saved_tensors
        return grads[0] * factors, None
