"""The definition of ReLU projections in plain PyTorch. It runs on any device."""

import torch
from torch import Tensor
from torch.nn import functional as F


def relu_linear(x_TD: Tensor, weight_FD: Tensor, bias_F: Tensor) -> Tensor:
    """Return [T, F]: the ReLU of a projection, in the dtype of `x_TD`."""
    return F.relu(F.linear(x_TD, weight_FD, bias_F.to(x_TD.dtype)))


def relu_backward(d_out_TF: Tensor, out_TF: Tensor) -> tuple[Tensor, Tensor]:
    """Return the gradients of a ReLU's input and, at least in fp32, of the bias added before the ReLU."""
    d_in_TF = d_out_TF.masked_fill(out_TF <= 0, 0.0)
    exact = torch.promote_types(d_out_TF.dtype, torch.float32)
    return d_in_TF, d_in_TF.sum(0, dtype=exact)
