"""Choose the implementation of ReLU projections and dropout. No other module here checks the device."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nmt_cli.model.pointwise import plain_relu_and_dropout
from nmt_cli.runtime.devices import autocast_dtype
from nmt_cli.runtime.kernels.families import usable
from nmt_cli.runtime.kernels.loading import compiled_kernels


def relu_linear(x: Tensor, linear: nn.Linear) -> Tensor:
    """Return [..., F]: the ReLU of a linear layer."""
    if not usable("pointwise", x.device) or linear.bias is None:
        # In place: the backward pass needs only the result, and no other code uses the input.
        return F.relu_(linear(x))
    from nmt_cli.model.pointwise import gpu_relu_and_dropout  # Triton is missing on machines without a GPU

    dtype = autocast_dtype(x.device) or x.dtype
    x_TD, weight_FD = x.flatten(0, -2).to(dtype), linear.weight.to(dtype)
    return gpu_relu_and_dropout.relu_linear(x_TD, weight_FD, linear.bias).view(
        *x.shape[:-1], linear.out_features
    )


def dropped(x_TD: Tensor, seed: Tensor, keys_T: Tensor, positions_T: Tensor, probability: float) -> Tensor:
    """Return the result of `plain_relu_and_dropout.dropped`, without gradients.

    The same elements are dropped on all devices.
    """
    x_TD = x_TD.contiguous()
    if usable("pointwise", x_TD.device):
        from nmt_cli.model.pointwise import gpu_relu_and_dropout

        return gpu_relu_and_dropout.dropped(x_TD, seed, keys_T, positions_T, probability)
    if x_TD.device.type == "cpu" and (compiled := compiled_kernels("model.pointwise.cpu_dropout")):
        levels = plain_relu_and_dropout.dropped_levels(probability)
        factor = plain_relu_and_dropout.LEVELS / (plain_relu_and_dropout.LEVELS - levels)
        # Kernels read fp32 only. In other formats, they compute factors.
        exact = x_TD.dtype == torch.float32
        values_TD = x_TD if exact else torch.ones(x_TD.shape)
        out_TD = torch.empty_like(values_TD)
        tokens = keys_T.numpy(), positions_T.numpy()
        compiled.drop_rows(values_TD.detach().numpy(), out_TD.numpy(), int(seed), *tokens, levels, factor)
        return out_TD if exact else x_TD * out_TD.to(x_TD.dtype)
    return plain_relu_and_dropout.dropped(x_TD, seed, keys_T, positions_T, probability)
