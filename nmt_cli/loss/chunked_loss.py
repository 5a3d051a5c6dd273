"""The loss of training: projection and cross-entropy, without ever holding all logits.

It is computed for one chunk of tokens at a time, and the forward pass also computes the gradients. The part
between the matrix products, the losses of rows of logits, has an implementation for each kind of device.
`_implementation` chooses it.

Axes: T tokens, C tokens of a chunk, D features, V entries of the vocabulary.
"""

from functools import partial
from typing import Any

import torch
from torch import Tensor

from nmt_cli.loss.plain_loss import LossSums
from nmt_cli.loss.r_drop import r_drop_rows
from nmt_cli.loss.row_losses import RowLosses, plain_rows, rows
from nmt_cli.runtime.kernels.families import usable
from nmt_cli.runtime.kernels.torch_private import add_product

CHUNK = 512
"""Tokens of a chunk on the CPU. Smaller chunks slow products down, larger ones exceed the cache."""

CHUNK_ON_GPU = 4096
"""Enough for matrix products to fill the device, and a sixth of a usual batch."""


def cross_entropy(
    x_TD: Tensor,
    weight_VD: Tensor,
    targets_T: Tensor,
    *,
    smoothing: float,
    grad_scale: Tensor | None = None,
    r_drop: float = 0.0,
) -> LossSums:
    """Project T tokens of D features onto V entries. Return the summed cross-entropy with the targets.

    The target distribution is 1 - `smoothing` on the target plus `smoothing` / V on every entry. IGNORED
    targets have no loss and no gradient. Other targets outside of the vocabulary raise `RuntimeError`, or
    give NaN by the kernel of a GPU. Matrix products have the dtype of `x_TD`, also under autocast. Raise
    `ValueError` if shapes do not fit, or if `smoothing` is not in [0, 1).

    The forward pass computes the gradients. The backward pass multiplies them by the incoming gradient. There
    are no second derivatives. `grad_scale` (0-d, on the device, not 0) is the expected incoming gradient: the
    loss scale divided by the number of tokens. The forward pass multiplies by it, so that half precision
    keeps small gradients. The backward pass divides by it, unless the incoming gradient is the same tensor.

    With `r_drop`, the second half of the tokens repeats the first half with other dropout masks. Both losses
    are then means of the two draws. The smoothed loss has `r_drop` / 4 times the sum of the KL divergences of
    each draw from the other in addition.
    """
    if x_TD.ndim != 2 or weight_VD.ndim != 2 or x_TD.shape[1] != weight_VD.shape[1]:
        raise ValueError(f"features {tuple(x_TD.shape)} do not fit weights {tuple(weight_VD.shape)}")
    if targets_T.shape != x_TD.shape[:1]:
        raise ValueError(f"{x_TD.shape[0]} tokens, but targets of shape {tuple(targets_T.shape)}")
    if not 0 <= smoothing < 1:
        raise ValueError(f"smoothing is {smoothing}, not in [0, 1)")
    x_gradient, weight_gradient = (torch.is_grad_enabled() and x.requires_grad for x in (x_TD, weight_VD))
    smoothed, nll, _, _ = losses_and_gradients(
        x_TD, weight_VD, targets_T, smoothing, r_drop, grad_scale, x_gradient, weight_gradient
    )
    return LossSums(smoothed, nll)


@torch.library.custom_op("nmt::losses_and_gradients", mutates_args=())
def losses_and_gradients(
    x_TD: Tensor,
    weight_VD: Tensor,
    targets_T: Tensor,
    smoothing: float,
    r_drop: float,
    grad_scale: Tensor | None,
    x_gradient: bool,
    weight_gradient: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return four tensors: the sums of the smoothed loss and of the NLL, and the gradients of `x_TD` and
    `weight_VD`.

    The gradients are those of the smoothed loss, times `grad_scale` if it is given. With the flag
    `x_gradient` or `weight_gradient` False, its gradient is not computed and has no elements.

    r_drop: the weight of R-Drop, 0 without it. Otherwise, the second half of the tokens repeats the first
        half.

    `cross_entropy` explains the other arguments. PyTorch sees this function as one operation, whose backward
    pass only scales the gradients.
    """
    computing, chunk, unit = _implementation(x_TD.device)
    if r_drop:
        # Both draws of a token become neighbours, so that a chunk has both.
        computing = partial(r_drop_rows, rows=computing, r_drop=r_drop)
        x_TD, targets_T = (_transposed(half_after_half, (2, -1)) for half_after_half in (x_TD, targets_T))
    smoothed, nll, d_x, d_weight = walk(
        x_TD,
        weight_VD,
        targets_T,
        smoothing,
        grad_scale,
        x_gradient,
        weight_gradient,
        rows=computing,
        chunk=chunk,
        unit=unit,
    )
    if r_drop and x_gradient:
        d_x = _transposed(d_x, (-1, 2))
    return smoothed, nll, d_x, d_weight


def _transposed(rows: Tensor, shape: tuple[int, int]) -> Tensor:
    """Return `rows`, [tokens, ...], in another order: read as a matrix of `shape`, they are transposed.

    With the shape (2, -1), halves after each other become alternating rows. The shape (-1, 2) restores the
    order.
    """
    return rows.reshape(*shape, *rows.shape[1:]).transpose(0, 1).flatten(0, 1)


def _implementation(device: torch.device) -> tuple[RowLosses, int, int]:
    """Return how to compute on a device: the function for rows of logits, and the `chunk` and `unit` of
    `walk`."""
    if usable("loss", device):
        from nmt_cli.loss import gpu_row_losses  # Triton is missing without a GPU

        return gpu_row_losses.rows, CHUNK_ON_GPU, gpu_row_losses.UNIT
    if device.type == "cpu":
        return rows, CHUNK, 1
    return plain_rows, CHUNK_ON_GPU, 1


@losses_and_gradients.register_fake
def _fake(x_TD: Tensor, weight_VD: Tensor, *options: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return tensors like the results, for torch.compile. `options` ends with the two gradient flags."""
    *_, x_gradient, weight_gradient = options
    loss = x_TD.new_empty((), dtype=_at_least_fp32(x_TD.dtype))
    d_x = x_TD.new_empty(x_TD.shape if x_gradient else (0,))
    d_weight = weight_VD.new_empty(weight_VD.shape if weight_gradient else (0,))
    return loss, torch.empty_like(loss), d_x, d_weight


def walk(
    x_TD: Tensor,
    weight_VD: Tensor,
    targets_T: Tensor,
    smoothing: float,
    grad_scale: Tensor | None,
    x_gradient: bool,
    weight_gradient: bool,
    *,
    rows: RowLosses,
    chunk: int,
    unit: int = 1,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Compute the results of `losses_and_gradients` without R-Drop, for `chunk` tokens at a time.

    rows: computes the losses of a chunk, and overwrites its logits by their gradient.
    chunk: the maximum number of tokens whose logits exist at a time.
    unit: rows of logits and of losses begin at multiples of this many numbers, so that a GPU reads several at
        a time.
    """
    tokens, wide = x_TD.shape[0], _at_least_fp32(x_TD.dtype)
    cast_VD = weight_VD.to(x_TD.dtype)
    # Rows begin at multiples of `unit` too. Triton compiles a kernel again for other addresses.
    losses_2T = x_TD.new_empty((2, -(-tokens // unit) * unit), dtype=wide)[:, :tokens]
    d_x = x_TD.new_empty(x_TD.shape if x_gradient else (0,))
    d_weight = weight_VD.new_zeros(weight_VD.shape if weight_gradient else (0,), dtype=wide)
    entries = weight_VD.shape[0]
    # One buffer for all chunks: never more than `chunk` rows of logits exist.
    buffer_CV = x_TD.new_empty((min(chunk, tokens), -(-entries // unit) * unit))[:, :entries]
    # Autocast would choose another dtype than that of `x_TD`.
    with torch.autocast(x_TD.device.type, enabled=False):
        for start in range(0, tokens, chunk):
            part = slice(start, start + chunk)
            x_CD = x_TD[part]
            logits_CV = torch.mm(x_CD, cast_VD.mT, out=buffer_CV[: x_CD.shape[0]])
            gradient = x_gradient or weight_gradient
            rows(logits_CV, targets_T[part], losses_2T[:, part], smoothing, grad_scale, gradient)
            if x_gradient:
                torch.mm(logits_CV, cast_VD, out=d_x[part])
            if weight_gradient:  # the sum over chunks is fp32, also for factors of half precision
                add_product(d_weight, logits_CV.mT, x_CD)
    return losses_2T[0].sum(), losses_2T[1].sum(), d_x, d_weight.to(weight_VD.dtype)


def _at_least_fp32(dtype: torch.dtype) -> torch.dtype:
    return torch.promote_types(dtype, torch.float32)


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    """Save both gradients and `grad_scale` in `ctx`. Only the smoothed loss is differentiable."""
    *_, grad_scale, ctx.x_gradient, ctx.weight_gradient = inputs
    _, nll, d_x, d_weight = output
    ctx.mark_non_differentiable(nll, d_x, d_weight)
    ctx.save_for_backward(d_x, d_weight, grad_scale)


def _backward(ctx: Any, incoming: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
    """Return the gradients of `x_TD` and `weight_VD`, and None for each of the six other arguments.

    The forward pass has computed them times `grad_scale`, where None is 1. So multiply by `incoming`, and
    divide by `grad_scale`. A gradient whose flag was False is None.
    """
    d_x, d_weight, grad_scale = ctx.saved_tensors
    gradients = [d_x if ctx.x_gradient else None, d_weight if ctx.weight_gradient else None]
    if incoming is not grad_scale:
        factor = incoming if grad_scale is None else incoming / grad_scale
        gradients = [None if gradient is None else gradient * factor for gradient in gradients]
    return *gradients, *[None] * 6


losses_and_gradients.register_autograd(_backward, setup_context=_save)
