"""ReLU projections, their gradients and dropout with few passes over memory, the last two by Triton kernels.

Axes: T tokens, D channels, F channels inside a feed-forward layer, P parts of the tokens.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from nmt_cli.attention.gpu_attention_parts import absorbed
from nmt_cli.model.pointwise.plain_relu_and_dropout import LEVELS, dropped_levels
from nmt_cli.runtime.kernels.torch_private import relu_product

ROWS, COLUMNS, WARPS = 16, 256, 4
"""Rows and columns of a tile of a ReLU program, and its warps. A row has 512 bytes in fp16."""

PART = 128
"""Tokens whose bias gradients one program sums. Few enough to give all processors of the device a part."""


@triton.jit(do_not_specialize=["tokens"])
def _relu_backward_kernel(
    d_out, out, d_in, sums, tokens, width, d_out_token,
    PART: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """Write to `d_in` the gradients `d_out` of PART tokens, or 0 where `out` is at most 0.

    Write their sum, of the dtype WIDE, to this program's row of `sums`. A program does COLUMNS columns, and
    ROWS tokens at a time. `d_out_token` is the stride of `d_out`.
    """
    part = tl.program_id(0)
    columns = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    total = tl.zeros((COLUMNS,), WIDE)
    for first in range(0, PART, ROWS):
        rows = (part * PART + first + tl.arange(0, ROWS)).to(tl.int64)
        inside = (rows < tokens)[:, None] & (columns < width)[None, :]
        offsets = rows[:, None] * width + columns[None, :]
        output = tl.load(out + offsets, mask=inside, other=0.0)
        gradient = tl.load(d_out + rows[:, None] * d_out_token + columns[None, :], mask=inside, other=0.0)
        # As in PyTorch, a gradient passes if the output is NaN.
        gradient = tl.where(output <= 0, 0.0, gradient)
        tl.store(d_in + offsets, gradient, mask=inside)
        total += tl.sum(gradient.to(WIDE), 0)
    tl.store(sums + part.to(tl.int64) * width + columns, total, mask=columns < width)


@triton.jit(do_not_specialize=["tokens", "levels"])
def _dropped_kernel(
    x, out, seed, keys, positions, tokens, width, half, levels, factor,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """Write the result of `plain_relu_and_dropout.dropped` to `out`.

    A program does ROWS tokens, and COLUMNS columns of each half of the channels. `half` is the number of
    channels in the first half of the `width`. Multiply in the dtype WIDE.
    """
    rows = (tl.program_id(0) * ROWS + tl.arange(0, ROWS)).to(tl.int64)
    columns = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    number = tl.load(seed)
    state = absorbed(absorbed(0, number), number >> 32)
    state = absorbed(state, tl.load(keys + rows, mask=rows < tokens, other=0))
    state = absorbed(state, tl.load(positions + rows, mask=rows < tokens, other=0))
    bits = absorbed(state[:, None], columns[None, :])
    offsets = rows[:, None] * width + columns[None, :]
    inside = (rows < tokens)[:, None] & (columns < half)[None, :]
    value = tl.load(x + offsets, mask=inside, other=0.0)
    value = tl.where((bits >> 16).to(tl.int32) >= levels, value.to(WIDE) * factor, 0.0)
    tl.store(out + offsets, value, mask=inside)
    inside = inside & (columns + half < width)[None, :]
    value = tl.load(x + offsets + half, mask=inside, other=0.0)
    value = tl.where((bits & 0xFFFF).to(tl.int32) >= levels, value.to(WIDE) * factor, 0.0)
    tl.store(out + offsets + half, value, mask=inside)


def dropped(x_TD: Tensor, seed: Tensor, keys_T: Tensor, positions_T: Tensor, probability: float) -> Tensor:
    """Return the result of `plain_relu_and_dropout.dropped` by one kernel. `x_TD` is contiguous."""
    out_TD, levels = torch.empty_like(x_TD), dropped_levels(probability)
    tokens, width = x_TD.shape
    if x_TD.numel():
        with torch.cuda.device_of(x_TD):
            _dropped_kernel[(triton.cdiv(tokens, ROWS), triton.cdiv(width, 2 * COLUMNS))](
                x_TD,
                out_TD,
                seed,
                keys_T,
                positions_T,
                tokens,
                width,
                half=(width + 1) // 2,
                levels=levels,
                factor=LEVELS / (LEVELS - levels),
                ROWS=ROWS,
                COLUMNS=COLUMNS,
                num_warps=WARPS,
                WIDE=tl.float64 if x_TD.dtype == torch.float64 else tl.float32,
            )
    return out_TD


def relu_linear(x_TD: Tensor, weight_FD: Tensor, bias_F: Tensor) -> Tensor:
    """Return [T, F]: the ReLU of a projection, in the dtype of `x_TD`, computed by one kernel."""
    if torch.is_grad_enabled():
        out_TF: Tensor = _ReluLinear.apply(x_TD, weight_FD, bias_F)
        return out_TF
    return relu_product(x_TD, weight_FD, bias_F.to(x_TD.dtype))


class _ReluLinear(torch.autograd.Function):
    """A ReLU projection that computes its gradients from its output."""

    @staticmethod
    def forward(ctx: Any, x_TD: Tensor, weight_FD: Tensor, bias_F: Tensor) -> Tensor:
        out_TF: Tensor = torch.ops.nmt.relu_linear(x_TD, weight_FD, bias_F)
        ctx.save_for_backward(x_TD, weight_FD, out_TF)
        return out_TF

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        x_TD, weight_FD, out_TF = ctx.saved_tensors
        d_in_TF, d_bias_F = relu_backward(grads[0], out_TF)
        x, weight, _ = ctx.needs_input_grad
        return d_in_TF @ weight_FD if x else None, d_in_TF.mT @ x_TD if weight else None, d_bias_F


# Operators, so that torch.compile does not separate the product from the ReLU. `custom_op` takes the host
# longer, as in `gpu_attention.py`.
torch.library.define(
    "nmt::relu_linear", "(Tensor x, Tensor weight, Tensor bias) -> Tensor", tags=torch.Tag.pt2_compliant_tag
)
torch.library.define(
    "nmt::relu_backward", "(Tensor d_out, Tensor out) -> (Tensor, Tensor)", tags=torch.Tag.pt2_compliant_tag
)


@torch.library.impl("nmt::relu_linear", "default")
def _relu_linear(x_TD: Tensor, weight_FD: Tensor, bias_F: Tensor) -> Tensor:
    return relu_product(x_TD, weight_FD, bias_F.to(x_TD.dtype))


def relu_backward(d_out_TF: Tensor, out_TF: Tensor) -> tuple[Tensor, Tensor]:
    """Return the gradients of a ReLU's input and of its bias. Repeated calls give the same bits."""
    d_in_TF, d_bias_F = torch.ops.nmt.relu_backward(d_out_TF, out_TF)
    return d_in_TF, d_bias_F


@torch.library.impl("nmt::relu_backward", "default")
def _relu_backward(d_out_TF: Tensor, out_TF: Tensor) -> tuple[Tensor, Tensor]:
    """Compute `relu_backward` by a kernel, and the sums of its programs."""
    tokens, width = out_TF.shape
    d_out_TF = d_out_TF if d_out_TF.stride(1) == 1 else d_out_TF.contiguous()
    d_in_TF, sums_PF = _gradients(out_TF)
    if tokens:
        # Triton uses the current device, not that of the tensors.
        with torch.cuda.device_of(out_TF):
            _relu_backward_kernel[(len(sums_PF), triton.cdiv(width, COLUMNS))](
                d_out_TF,
                out_TF,
                d_in_TF,
                sums_PF,
                tokens,
                width,
                d_out_token=d_out_TF.stride(0),
                PART=PART,
                ROWS=ROWS,
                COLUMNS=COLUMNS,
                num_warps=WARPS,
                WIDE=tl.float64 if sums_PF.dtype == torch.float64 else tl.float32,
            )
    return d_in_TF, sums_PF.sum(0)


def _gradients(out_TF: Tensor) -> tuple[Tensor, Tensor]:
    """Allocate the gradient [T, F] of a ReLU's input, and the sums [P, F] over each part of the tokens."""
    tokens, width = out_TF.shape
    exact = torch.promote_types(out_TF.dtype, torch.float32)
    return torch.empty_like(out_TF), out_TF.new_empty((-(-tokens // PART), width), dtype=exact)


@torch.library.register_fake("nmt::relu_linear")
def _(x_TD: Tensor, weight_FD: Tensor, bias_F: Tensor) -> Tensor:
    return x_TD.new_empty((x_TD.shape[0], weight_FD.shape[0]))


@torch.library.register_fake("nmt::relu_backward")
def _(d_out_TF: Tensor, out_TF: Tensor) -> tuple[Tensor, Tensor]:
    d_in_TF, sums_PF = _gradients(out_TF)
    return d_in_TF, sums_PF.sum(0)
