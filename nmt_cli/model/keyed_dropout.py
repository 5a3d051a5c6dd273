"""Dropout whose masks depend on the pair, not on the batch.

The mask of an element is a hash of a seed, the mask key of its segment, its position and its channel. So the
masks of a pair are equal in any micro-batch, on any rank and on any device.
"""

from typing import Any

import torch
from torch import Tensor

from nmt_cli.model.pointwise.plain_relu_and_dropout import dropped as dropped_by_definition
from nmt_cli.model.pointwise.relu_and_dropout import dropped
from nmt_cli.ragged import Layout

SEEDS = 1 << 62


def dropout(x_TD: Tensor, probability: float, training: bool, layout: Layout | None) -> Tensor:
    """In training, drop elements of `x_TD` with this probability and scale up the rest.

    Otherwise, return `x_TD`. `layout` has the segments of the rows. One number for the seed is drawn from
    PyTorch's generator.
    """
    if not training or not probability:
        return x_TD
    assert layout is not None, "training needs a layout"
    # With masks by rank and micro-batch, the losses of two ranks would differ from those of one by 4e-3 in
    # the first step.
    words = dropout_seed(x_TD), layout.mask_keys[layout.segments], layout.positions
    if torch.compiler.is_compiling():  # which fuses the operations of the hash
        return dropped_by_definition(x_TD, *words, probability)
    out: Tensor = _Dropout.apply(x_TD, *words, probability)  # type: ignore[no-untyped-call]  # untyped in PyTorch
    return out


def dropout_seed(like: Tensor) -> Tensor:
    """Return a random int64 [] for a dropout mask, on the device of `like`. Do not wait for the device."""
    return torch.randint(SEEDS, (), device=like.device)


class _Dropout(torch.autograd.Function):
    """Dropout that computes its mask again for the gradient, instead of storing it."""

    @staticmethod
    def forward(
        ctx: Any, x_TD: Tensor, seed: Tensor, keys_T: Tensor, positions_T: Tensor, probability: float
    ) -> Tensor:
        """Return `x_TD` with dropped elements, as `relu_and_dropout.dropped` does."""
        ctx.save_for_backward(seed, keys_T, positions_T)
        ctx.probability = probability
        return dropped(x_TD, seed, keys_T, positions_T, probability)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        seed, keys_T, positions_T = ctx.saved_tensors
        return dropped(grads[0], seed, keys_T, positions_T, ctx.probability), None, None, None, None
