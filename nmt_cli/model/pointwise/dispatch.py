"""Choose the implementation of ReLU projections. No other module here checks the device."""

from torch import Tensor, nn
from torch.nn import functional as F

from nmt_cli.runtime.devices import autocast_dtype
from nmt_cli.runtime.kernels.families import usable


def relu_linear(x: Tensor, linear: nn.Module) -> Tensor:
    """Return [..., F]: the ReLU of `linear`, an `nn.Linear` or a module that replaces it."""
    has_bias = isinstance(linear, nn.Linear) and linear.bias is not None
    if not (usable("pointwise", x.device) and isinstance(linear, nn.Linear) and has_bias):
        # In place: the backward pass needs only the result, and no other code uses the input.
        return F.relu_(linear(x))
    from nmt_cli.model.pointwise import fused  # Triton is missing on machines without a GPU

    dtype = autocast_dtype(x.device) or x.dtype
    x_TD, weight_FD = x.flatten(0, -2).to(dtype), linear.weight.to(dtype)
    return fused.relu_linear(x_TD, weight_FD, linear.bias).view(*x.shape[:-1], linear.out_features)
