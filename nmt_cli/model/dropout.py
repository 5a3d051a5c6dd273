"""Dropout that does not spend its time on random numbers."""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

CHANCES = 1 << 16
SEEDS = 1 << 62
EVERY_BIT = -(1 << 63)  # drawing from the least int64 on makes all 64 bits random


def dropout(x: Tensor, probability: float, training: bool) -> Tensor:
    """`x` with elements put to zero and the others scaled up, from torch's own generator of its device."""
    if not training or not probability:
        return x
    if x.device.type == "cpu" and not torch.compiler.is_compiling():
        dropped: Tensor = _Dropout.apply(x, probability)  # type: ignore[no-untyped-call]  # torch leaves it so
        return dropped
    return F.dropout(x, probability)


def dropout_seed(like: Tensor) -> Tensor:
    """A number that a mask follows from, drawn where `like` lives, so that the host need not wait for it."""
    return torch.randint(SEEDS, (), device=like.device)


class _Dropout(torch.autograd.Function):
    """PyTorch draws 64 random bits an element on the CPU, one after another; 16 of them are plenty."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, probability: float) -> Tensor:
        draws = torch.empty((x.numel() + 3) // 4, dtype=torch.int64).random_(EVERY_BIT, None)
        bits = draws.view(torch.int16)[: x.numel()].view(x.shape)
        # However near to 1, something stays: what does is scaled by 1 / (1 - probability).
        chances = min(round(probability * CHANCES), CHANCES - 1)
        # The 16 bits are read as signed, from -CHANCES / 2 on.
        factors = torch.ge(
            bits, chances - CHANCES // 2, out=torch.empty_like(x, memory_format=torch.contiguous_format)
        )
        factors.mul_(CHANCES / (CHANCES - chances))
        ctx.save_for_backward(factors)
        return x * factors

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        (factors,) = ctx.saved_tensors
        return grads[0] * factors, None
