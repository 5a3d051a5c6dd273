"""The definition of ReLU projections and dropout in plain PyTorch. It runs on any device."""

import torch
from torch import Tensor
from torch.nn import functional as F

from nmt_cli.attention.dropout_masks import hashed

LEVELS = 1 << 16
"""Number of values of the 16 random bits of an element."""


def relu_linear(x_TD: Tensor, weight_FD: Tensor, bias_F: Tensor) -> Tensor:
    """Return [T, F]: the ReLU of a projection, in the dtype of `x_TD`."""
    return F.relu(F.linear(x_TD, weight_FD, bias_F.to(x_TD.dtype)))


def relu_backward(d_out_TF: Tensor, out_TF: Tensor) -> tuple[Tensor, Tensor]:
    """Return the gradients of a ReLU's input and, at least in fp32, of the bias added before the ReLU."""
    d_in_TF = d_out_TF.masked_fill(out_TF <= 0, 0.0)
    exact = torch.promote_types(d_out_TF.dtype, torch.float32)
    return d_in_TF, d_in_TF.sum(0, dtype=exact)


def dropped_levels(probability: float) -> int:
    """Return the number of values of an element's 16 bits that drop the element: at most all but one."""
    return min(round(probability * LEVELS), LEVELS - 1)


def dropped(x_TD: Tensor, seed: Tensor, keys_T: Tensor, positions_T: Tensor, probability: float) -> Tensor:
    """Return `x_TD` with elements dropped by this probability, and the others scaled up.

    The mask is a hash of `seed` (int64), of the mask key and the position of each token (both int32), and of
    the channel. One hash has the random bits of two elements: the upper bits belong to the first half of the
    channels, the lower bits to the second half.
    """
    levels, width = dropped_levels(probability), x_TD.shape[1]
    channels, half = torch.arange(width, dtype=torch.int32, device=x_TD.device), (width + 1) // 2
    is_first = channels < half
    # Each hash is computed twice. With a `cat` of halves that share it, torch.compile writes all hashes to
    # memory: 1.7 GB in a step of the base model.
    hashes = hashed(seed, keys_T[:, None], positions_T[:, None], channels.where(is_first, channels - half))
    bits_TD = hashes >> torch.where(is_first, 16, 0) & (LEVELS - 1)
    return torch.where(bits_TD >= levels, x_TD * (LEVELS / (LEVELS - levels)), 0.0)
