"""What lies between the matrix products, in as few passes over memory as there can be.

Axes: T tokens, D channels, F channels inside a feed-forward layer, P parts of the tokens.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from nmt_cli.machine.torch_private import relu_product

ROWS, COLUMNS, WARPS = 16, 256, 4
"""A tile: what a program holds at a time. Columns are read 512 bytes at a time in half precision."""

PART = 128
"""Tokens whose bias gradients a program adds up: few enough for all processors of the device to have some."""


@triton.jit(do_not_specialize=["tokens"])
def _relu_backward_kernel(
    d_out,
    out,
    d_in,
    sums,
    tokens,
    width,
    d_out_token,
    PART: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    WIDE: tl.constexpr,
):
    """A part of the tokens, and some columns: masked by the sign of the output, and added up in order."""
    part = tl.program_id(0)
    columns = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    total = tl.zeros((COLUMNS,), WIDE)
    for first in range(0, PART, ROWS):
        rows = (part * PART + first + tl.arange(0, ROWS)).to(tl.int64)
        inside = (rows < tokens)[:, None] & (columns < width)[None, :]
        here = rows[:, None] * width + columns[None, :]
        kept = tl.load(out + here, mask=inside, other=0.0)
        gradient = tl.load(d_out + rows[:, None] * d_out_token + columns[None, :], mask=inside, other=0.0)
        # As PyTorch has it, which lets a gradient pass where the output is NaN.
        gradient = tl.where(kept <= 0, 0.0, gradient)
        tl.store(d_in + here, gradient, mask=inside)
        total += tl.sum(gradient.to(WIDE), 0)
    tl.store(sums + part.to(tl.int64) * width + columns, total, mask=columns < width)


def relu_linear(x_TD: Tensor, weight_FD: Tensor, bias_F: Tensor) -> Tensor:
    """Do what `reference.relu_linear` defines; bias and ReLU are added where the product is written."""
    if torch.is_grad_enabled():
        out_TF: Tensor = _relu_linear(x_TD, weight_FD, bias_F)
        return out_TF
    return relu_product(x_TD, weight_FD, bias_F.to(x_TD.dtype))  # an operator of ours costs the host time


# An operator, so that torch.compile does not take the product and what follows it apart again.
@torch.library.custom_op("nmt::relu_linear", mutates_args=())
def _relu_linear(x_TD: Tensor, weight_FD: Tensor, bias_F: Tensor) -> Tensor:
    return relu_product(x_TD, weight_FD, bias_F.to(x_TD.dtype))


@torch.library.custom_op("nmt::relu_backward", mutates_args=())
def relu_backward(d_out_TF: Tensor, out_TF: Tensor) -> tuple[Tensor, Tensor]:
    """Do what `reference.relu_backward` defines, in one pass; sums are the same each time."""
    tokens, width = out_TF.shape
    d_out_TF = d_out_TF if d_out_TF.stride(1) == 1 else d_out_TF.contiguous()
    d_in_TF, sums_PF = _gradients(out_TF)
    if tokens:
        # Triton launches on the current device, whichever the tensors are on.
        with torch.cuda.device_of(out_TF):
            _relu_backward_kernel[(len(sums_PF), triton.cdiv(width, COLUMNS))](
                *(d_out_TF, out_TF, d_in_TF, sums_PF, tokens, width, d_out_TF.stride(0)),
                **{"PART": PART, "ROWS": ROWS, "COLUMNS": COLUMNS, "num_warps": WARPS},
                WIDE=tl.float64 if sums_PF.dtype == torch.float64 else tl.float32,
            )
    return d_in_TF, sums_PF.sum(0)


def _gradients(out_TF: Tensor) -> tuple[Tensor, Tensor]:
    tokens, width = out_TF.shape
    exact = torch.promote_types(out_TF.dtype, torch.float32)
    return torch.empty_like(out_TF), out_TF.new_empty((-(-tokens // PART), width), dtype=exact)


@_relu_linear.register_fake
def _(x_TD: Tensor, weight_FD: Tensor, bias_F: Tensor) -> Tensor:
    return x_TD.new_empty((x_TD.shape[0], weight_FD.shape[0]))


@relu_backward.register_fake
def _(d_out_TF: Tensor, out_TF: Tensor) -> tuple[Tensor, Tensor]:
    d_in_TF, sums_PF = _gradients(out_TF)
    return d_in_TF, sums_PF.sum(0)


def _remember(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs[:2], output)


def _differentiate(ctx: Any, d_out_TF: Tensor) -> tuple[Tensor | None, ...]:
    x_TD, weight_FD, out_TF = ctx.saved_tensors
    d_in_TF, d_bias_F = relu_backward(d_out_TF, out_TF)
    x, weight, _ = ctx.needs_input_grad
    return d_in_TF @ weight_FD if x else None, d_in_TF.mT @ x_TD if weight else None, d_bias_F


_relu_linear.register_autograd(_differentiate, setup_context=_remember)
