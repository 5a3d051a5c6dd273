"""Choose the implementation of ReLU projections and normed sums. No other module here checks the device."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nmt_cli.model.dropout import dropout, dropout_seed
from nmt_cli.runtime.devices import autocast_dtype
from nmt_cli.runtime.kernels.families import usable


def implementation(device: torch.device) -> str:
    """Return "fused" for a GPU if the kernels are usable, else "plain"."""
    return "fused" if usable("pointwise", device) else "plain"


def relu_linear(x: Tensor, linear: nn.Module) -> Tensor:
    """Return [..., F]: the ReLU of `linear`, an `nn.Linear` with a bias or a module that replaces it."""
    if implementation(x.device) == "plain" or not isinstance(linear, nn.Linear):
        # In place: the backward pass needs only the result, and no other code uses the input.
        return F.relu_(linear(x))
    from nmt_cli.model.pointwise import fused  # Triton is missing on machines without a GPU

    dtype = autocast_dtype(x.device) or x.dtype
    x_TD, weight_FD = x.flatten(0, -2).to(dtype), linear.weight.to(dtype)
    return fused.relu_linear(x_TD, weight_FD, linear.bias).view(*x.shape[:-1], linear.out_features)


def normed_sum(x: Tensor, y: Tensor, norm: nn.LayerNorm, drop: float) -> Tensor:
    """Return [..., D]: layer norm(x + dropout(y)), in the dtype of x, computed in the dtype of the weights.

    Use the fused kernel only with gradients, and if x has another dtype than the weights. For an equal dtype,
    `torch.compile` is faster, because it also writes the copy that matrix products need.
    """
    exact = norm.weight.dtype
    if implementation(x.device) == "fused" and x.dtype == y.dtype != exact and torch.is_grad_enabled():
        from nmt_cli.model.pointwise import fused

        seed = dropout_seed(x) if drop else None
        weights = (norm.weight, norm.bias, norm.eps)
        out_TD: Tensor = fused.normed_sum(x.flatten(0, -2), y.flatten(0, -2), *weights, drop, seed)[0]
        return out_TD.view(x.shape)
    normed: Tensor = norm(x.to(exact) + dropout(y, drop, training=True))
    return normed.to(x.dtype)
