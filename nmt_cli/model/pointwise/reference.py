"""The definition of ReLU projections and normed sums in plain PyTorch. It runs on any device."""

import torch
from torch import Tensor
from torch.nn import functional as F

from nmt_cli.attention.dropout import keep_mask


def relu_linear(x_TD: Tensor, weight_FD: Tensor, bias_F: Tensor) -> Tensor:
    """Return [T, F]: the ReLU of a projection, in the dtype of `x_TD`."""
    return F.relu(F.linear(x_TD, weight_FD, bias_F.to(x_TD.dtype)))


def relu_backward(d_out_TF: Tensor, out_TF: Tensor) -> tuple[Tensor, Tensor]:
    """Return the gradients of a ReLU's input and, at least in fp32, of the bias added before the ReLU."""
    d_in_TF = d_out_TF.masked_fill(out_TF <= 0, 0.0)
    exact = torch.promote_types(d_out_TF.dtype, torch.float32)
    return d_in_TF, d_in_TF.sum(0, dtype=exact)


def normed_sum(
    x_TD: Tensor,
    y_TD: Tensor,
    weight_D: Tensor,
    bias_D: Tensor,
    epsilon: float,
    drop: float,
    seed: Tensor | None,
) -> Tensor:
    """Return [T, D]: the layer norm of x + dropout(y), in the dtype of x, computed in that of the weights.

    `seed`, one int64 on the device, determines the dropout mask. Without a seed, drop nothing.
    """
    added_TD = y_TD.to(weight_D.dtype)
    if drop and seed is not None:
        rows_T, columns_D = (torch.arange(n, dtype=torch.int32, device=seed.device) for n in y_TD.shape)
        zero = rows_T.new_zeros(())
        added_TD = added_TD * keep_mask(seed, zero, zero, rows_T[:, None], columns_D, drop) / (1 - drop)
    summed_TD = x_TD.to(weight_D.dtype) + added_TD
    return F.layer_norm(summed_TD, weight_D.shape, weight_D, bias_D, epsilon).to(x_TD.dtype)
