"""Chooses who computes what lies between matrix products; it alone asks here which device it is on."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nmt_cli.machine.devices import autocast_dtype


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
    return fused.relu_linear(x_TD, weight_FD, linear.bias).unflatten(0, x.shape[:-1])
