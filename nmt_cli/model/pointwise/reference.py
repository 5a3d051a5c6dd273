"""The definition of what lies between the matrix products: plain PyTorch, runs anywhere."""

import torch
from torch import Tensor
from torch.nn import functional as F


def relu_linear(x_TD: Tensor, weight_FD: Tensor, bias_F: Tensor) -> Tensor:
    """[T, F], in the type of x."""
    return F.relu(F.linear(x_TD, weight_FD, bias_F.to(x_TD.dtype)))


def relu_backward(d_out_TF: Tensor, out_TF: Tensor) -> tuple[Tensor, Tensor]:
    """The gradients of what a ReLU was given, and, exact, of the bias that was added to that before."""
    d_in_TF = d_out_TF.masked_fill(out_TF <= 0, 0.0)
    exact = torch.promote_types(d_out_TF.dtype, torch.float32)
    return d_in_TF, d_in_TF.sum(0, dtype=exact)
