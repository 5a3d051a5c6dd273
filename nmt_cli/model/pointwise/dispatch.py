"""Chooses who computes what lies between matrix products; it alone asks here which device it is on."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nmt_cli.model.dropout import dropout, dropout_seed
from nmt_cli.runtime.devices import autocast_dtype


def implementation(device: torch.device) -> str:
    """Who computes on such a device: "fused" or "plain"."""
    return "fused" if device.type == "cuda" else "plain"


def relu_linear(x: Tensor, linear: nn.Module) -> Tensor:
    """The ReLU of an `nn.Linear` with a bias, or of what stands in for it: [..., D] to [..., F]."""
    if implementation(x.device) == "plain" or not isinstance(linear, nn.Linear):
        # In place: backward needs only its result, and nobody else reads what it was given.
        return F.relu_(linear(x))
    from nmt_cli.model.pointwise import fused  # Triton is absent on machines without a GPU

    dtype = autocast_dtype(x.device) or x.dtype
    x_TD, weight_FD = x.flatten(0, -2).to(dtype), linear.weight.to(dtype)
    return fused.relu_linear(x_TD, weight_FD, linear.bias).view(*x.shape[:-1], linear.out_features)


def normed_sum(x: Tensor, y: Tensor, norm: nn.LayerNorm, drop: float) -> Tensor:
    """The layer norm of x plus what dropout leaves of y: [..., D] in the type of x, computed in the weights'.

    Where x has that type too, products need a copy in theirs: `torch.compile` writes both in one pass.
    """
    exact = norm.weight.dtype
    if implementation(x.device) == "fused" and x.dtype == y.dtype != exact and torch.is_grad_enabled():
        from nmt_cli.model.pointwise import fused

        seed = dropout_seed(x) if drop else None
        weights = (norm.weight, norm.bias, norm.eps)
        out_TD = fused.normed_sum(x.flatten(0, -2), y.flatten(0, -2), *weights, drop, seed)
        return out_TD.view(x.shape)
    normed: Tensor = norm(x.to(exact) + dropout(y, drop, training=True))
    return normed.to(x.dtype)
