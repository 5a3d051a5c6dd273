"""ReLU projections and normed sums as Triton kernels, with few passes over memory.

Axes: T tokens, D channels, F channels inside a feed-forward layer, P parts of the tokens.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from nmt_cli.attention.dropout import threshold
from nmt_cli.attention.tile.fused import absorbed, dropped, head_state
from nmt_cli.runtime.kernels.torch_private import relu_product

ROWS, COLUMNS, WARPS = 16, 256, 4
"""Rows and columns of a tile of a ReLU program, and its warps. A row has 512 bytes in fp16."""

PART = 128
"""Tokens whose bias gradients one program sums. Few enough to give all processors of the device a part."""

TILE, NORM_PART = 2048, 32
"""Elements that a program of a layer norm holds at a time, and tokens whose gradients it sums."""


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


@triton.jit
def _summed(x, y, state, offsets, inside, rows, columns, threshold, amplified, DROPOUT: tl.constexpr):
    """Return two fp32 tiles: x + dropout(y), and the factors by which dropout multiplied y.

    The tile has these `offsets`, `rows` and `columns`. `state` is the dropout hash after the seed.
    """
    ones = tl.full(offsets.shape, 1.0, tl.float32)
    if DROPOUT:
        factors = dropped(ones, absorbed(state, rows)[:, None], columns[None, :], threshold, amplified)
    else:
        factors = ones
    added = tl.load(y + offsets, mask=inside, other=0.0).to(tl.float32) * factors
    return tl.load(x + offsets, mask=inside, other=0.0).to(tl.float32) + added, factors


@triton.jit(do_not_specialize=["tokens", "threshold"])
def _normed_sum_kernel(
    x, y, weight, bias, seed, out, means, scales,
    tokens, epsilon, threshold, amplified,
    D: tl.constexpr, PADDED: tl.constexpr, ROWS: tl.constexpr, DROPOUT: tl.constexpr,
):  # fmt: skip
    """Write layer norm(x + dropout(y)) of ROWS tokens to `out`, and their means and inverse deviations."""
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    columns = tl.arange(0, PADDED)
    inside = (rows < tokens)[:, None] & (columns < D)[None, :]
    offsets = rows.to(tl.int64)[:, None] * D + columns[None, :]
    zero = tl.full((), 0, tl.int32)
    state = head_state(seed, zero, zero) if DROPOUT else zero
    summed, _ = _summed(x, y, state, offsets, inside, rows, columns, threshold, amplified, DROPOUT)
    mean = tl.sum(summed, 1) / D
    apart = tl.where(inside, summed - mean[:, None], 0.0)
    scale = 1 / tl.sqrt(tl.sum(apart * apart, 1) / D + epsilon)
    gain = tl.load(weight + columns, mask=columns < D, other=0.0).to(tl.float32)
    shift = tl.load(bias + columns, mask=columns < D, other=0.0).to(tl.float32)
    tl.store(out + offsets, apart * scale[:, None] * gain[None, :] + shift[None, :], mask=inside)
    tl.store(means + rows, mean, mask=rows < tokens)
    tl.store(scales + rows, scale, mask=rows < tokens)


@triton.jit(do_not_specialize=["tokens", "threshold"])
def _normed_sum_backward_kernel(
    d_out, x, y, weight, seed, means, scales,
    dx, dy, d_weights, d_biases, tokens, threshold, amplified,
    D: tl.constexpr, PADDED: tl.constexpr, ROWS: tl.constexpr, PART: tl.constexpr, DROPOUT: tl.constexpr,
):  # fmt: skip
    """Write the gradients `dx` and `dy` of PART tokens, and the sums of their gradients of weight and bias.

    The sums are a row of `d_weights` and of `d_biases` [P, D]. `d_out` is the gradient of the output.
    """
    part = tl.program_id(0)
    columns = tl.arange(0, PADDED)
    gain = tl.load(weight + columns, mask=columns < D, other=0.0).to(tl.float32)
    d_weight, d_bias = tl.zeros((PADDED,), tl.float32), tl.zeros((PADDED,), tl.float32)
    zero = tl.full((), 0, tl.int32)
    state = head_state(seed, zero, zero) if DROPOUT else zero
    for first in range(0, PART, ROWS):
        rows = part * PART + first + tl.arange(0, ROWS)
        inside = (rows < tokens)[:, None] & (columns < D)[None, :]
        offsets = rows.to(tl.int64)[:, None] * D + columns[None, :]
        summed, factors = _summed(x, y, state, offsets, inside, rows, columns, threshold, amplified, DROPOUT)
        mean = tl.load(means + rows, mask=rows < tokens, other=0.0)
        scale = tl.load(scales + rows, mask=rows < tokens, other=0.0)
        normed = tl.where(inside, (summed - mean[:, None]) * scale[:, None], 0.0)
        incoming = tl.load(d_out + offsets, mask=inside, other=0.0).to(tl.float32)
        d_weight += tl.sum(incoming * normed, 0)
        d_bias += tl.sum(incoming, 0)
        d_normed = incoming * gain[None, :]
        along = tl.sum(d_normed * normed, 1) / D
        level = tl.sum(d_normed, 1) / D
        d_sum = (d_normed - level[:, None] - normed * along[:, None]) * scale[:, None]
        tl.store(dx + offsets, d_sum, mask=inside)
        tl.store(dy + offsets, d_sum * factors, mask=inside)
    sums = part.to(tl.int64) * D + columns
    tl.store(d_weights + sums, d_weight, mask=columns < D)
    tl.store(d_biases + sums, d_bias, mask=columns < D)


def relu_linear(x_TD: Tensor, weight_FD: Tensor, bias_F: Tensor) -> Tensor:
    """Return [T, F]: the ReLU of a projection, in the dtype of `x_TD`, computed by one kernel."""
    if torch.is_grad_enabled():
        out_TF: Tensor = _relu_linear(x_TD, weight_FD, bias_F)
        return out_TF
    return relu_product(x_TD, weight_FD, bias_F.to(x_TD.dtype))  # without the overhead of a custom operator


# A custom operator, so that torch.compile does not separate the product from the ReLU.
@torch.library.custom_op("nmt::relu_linear", mutates_args=())
def _relu_linear(x_TD: Tensor, weight_FD: Tensor, bias_F: Tensor) -> Tensor:
    """Return [T, F]: the result of `relu_linear`, with gradients."""
    return relu_product(x_TD, weight_FD, bias_F.to(x_TD.dtype))


@torch.library.custom_op("nmt::relu_backward", mutates_args=())
def relu_backward(d_out_TF: Tensor, out_TF: Tensor) -> tuple[Tensor, Tensor]:
    """Return the gradients of a ReLU's input and of its bias. Repeated calls give the same bits."""
    tokens, width = out_TF.shape
    d_out_TF = d_out_TF if d_out_TF.stride(1) == 1 else d_out_TF.contiguous()
    d_in_TF, sums_PF = _gradients(out_TF)
    if tokens:
        # Triton uses the current device, not that of the tensors.
        with torch.cuda.device_of(out_TF):
            _relu_backward_kernel[(len(sums_PF), triton.cdiv(width, COLUMNS))](
                *(d_out_TF, out_TF, d_in_TF, sums_PF, tokens, width, d_out_TF.stride(0)),
                **{"PART": PART, "ROWS": ROWS, "COLUMNS": COLUMNS, "num_warps": WARPS},
                WIDE=tl.float64 if sums_PF.dtype == torch.float64 else tl.float32,
            )
    return d_in_TF, sums_PF.sum(0)


def _gradients(out_TF: Tensor) -> tuple[Tensor, Tensor]:
    """Allocate the gradient [T, F] of a ReLU's input, and the sums [P, F] over each part of the tokens."""
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


def _save_projection(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
    """Save x, the weight and the output of a ReLU projection."""
    ctx.save_for_backward(*inputs[:2], output)


def _projection_backward(ctx: Any, d_out_TF: Tensor) -> tuple[Tensor | None, ...]:
    """Return the gradients of x, weight and bias of a ReLU projection."""
    x_TD, weight_FD, out_TF = ctx.saved_tensors
    d_in_TF, d_bias_F = relu_backward(d_out_TF, out_TF)
    x, weight, _ = ctx.needs_input_grad
    return d_in_TF @ weight_FD if x else None, d_in_TF.mT @ x_TD if weight else None, d_bias_F


_relu_linear.register_autograd(_projection_backward, setup_context=_save_projection)


@torch.library.custom_op("nmt::normed_sum", mutates_args=())
def normed_sum(
    x_TD: Tensor,
    y_TD: Tensor,
    weight_D: Tensor,
    bias_D: Tensor,
    epsilon: float,
    drop: float,
    seed: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return [T, D]: layer norm(x + dropout(y)), and the mean and inverse deviation of each token, [T].

    Compute in fp32. `seed` determines dropout, and may be None if `drop` is 0. Only the norm has gradients.
    """
    x_TD, y_TD = x_TD.contiguous(), y_TD.contiguous()
    out_TD, means_T, scales_T = _normed(x_TD)
    constants = _constants(x_TD, drop)
    with torch.cuda.device_of(x_TD):
        _normed_sum_kernel[(triton.cdiv(len(x_TD), constants["ROWS"]),)](
            *(x_TD, y_TD, weight_D, bias_D, seed, out_TD, means_T, scales_T, len(x_TD), epsilon), **constants
        )
    return out_TD, means_T, scales_T


@torch.library.custom_op("nmt::normed_sum_backward", mutates_args=())
def _normed_sum_backward(
    d_out_TD: Tensor,
    means_T: Tensor,
    scales_T: Tensor,
    x_TD: Tensor,
    y_TD: Tensor,
    weight_D: Tensor,
    drop: float,
    seed: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the gradients of x, y, weight and bias. `means_T` and `scales_T` are from `normed_sum`."""
    d_out_TD, x_TD, y_TD = (x.contiguous() for x in (d_out_TD, x_TD, y_TD))
    dx_TD, dy_TD, d_weight_PD, d_bias_PD = _normed_gradients(x_TD)
    with torch.cuda.device_of(x_TD):
        _normed_sum_backward_kernel[(len(d_weight_PD),)](
            *(d_out_TD, x_TD, y_TD, weight_D, seed, means_T, scales_T),
            *(dx_TD, dy_TD, d_weight_PD, d_bias_PD, len(x_TD)),
            **_constants(x_TD, drop),
            PART=NORM_PART,
        )
    return dx_TD, dy_TD, d_weight_PD.sum(0), d_bias_PD.sum(0)


def _constants(x_TD: Tensor, drop: float) -> dict[str, Any]:
    """Return keyword arguments for both kernels of a normed sum: dropout, widths, rows of a tile, warps."""
    width = x_TD.shape[1]
    padded = triton.next_power_of_2(width)
    return {
        **{"threshold": threshold(drop), "amplified": 1 / (1 - drop), "DROPOUT": drop > 0},
        **{"D": width, "PADDED": padded, "ROWS": min(NORM_PART, max(1, TILE // padded)), "num_warps": WARPS},
    }


def _normed(x_TD: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Allocate the three results of `normed_sum`."""
    means_T, scales_T = (x_TD.new_empty(x_TD.shape[0], dtype=torch.float32) for _ in range(2))
    return x_TD.new_empty(x_TD.shape), means_T, scales_T


def _normed_gradients(x_TD: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Allocate the gradients of x and y, and sums [P, D] of the gradients of weight and bias."""
    parts, width = -(-x_TD.shape[0] // NORM_PART), x_TD.shape[1]
    sums = [x_TD.new_empty((parts, width), dtype=torch.float32) for _ in range(2)]
    return x_TD.new_empty(x_TD.shape), x_TD.new_empty(x_TD.shape), sums[0], sums[1]


@normed_sum.register_fake
def _(x_TD: Tensor, *_: Any) -> tuple[Tensor, Tensor, Tensor]:
    return _normed(x_TD)


@_normed_sum_backward.register_fake
def _(
    d_out_TD: Tensor, means_T: Tensor, scales_T: Tensor, x_TD: Tensor, *_: Any
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    dx_TD, dy_TD, d_weight_PD, d_bias_PD = _normed_gradients(x_TD)
    return dx_TD, dy_TD, d_weight_PD.sum(0), d_bias_PD.sum(0)


def _save_sum(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor]) -> None:
    """Save x, y, weight, dropout, means and scales of a normed sum for the backward pass."""
    x_TD, y_TD, weight_D, _, _, ctx.drop, seed = inputs
    ctx.save_for_backward(*output[1:], x_TD, y_TD, weight_D, seed)
    ctx.mark_non_differentiable(*output[1:])
    # Means and scales have no gradient. By default PyTorch would create zeros.
    ctx.set_materialize_grads(False)


def _sum_backward(ctx: Any, d_out_TD: Tensor, *_: None) -> tuple[Tensor | None, ...]:
    """Return the gradients of x, y, weight and bias of a normed sum, and None for its options."""
    *saved, seed = ctx.saved_tensors
    return *_normed_sum_backward(d_out_TD, *saved, ctx.drop, seed), None, None, None


normed_sum.register_autograd(_sum_backward, setup_context=_save_sum)
