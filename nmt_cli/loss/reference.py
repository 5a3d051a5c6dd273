"""The definition of the loss: plain PyTorch, holds all logits at once, runs anywhere."""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

IGNORED = -1
"""The target of filler tokens, which have no loss and no gradient."""


class Losses(NamedTuple):
    """Sums over the tokens, in fp32 (float64 of float64 input). Only `smoothed` carries gradients."""

    smoothed: Tensor
    nll: Tensor


def cross_entropy(
    x_TD: Tensor, weight_VD: Tensor, targets_T: Tensor, *, smoothing: float, grad_scale: Tensor | None = None
) -> Losses:
    """Do what `dispatch.cross_entropy` promises; `grad_scale` is not needed to define it."""
    logits_TV = F.linear(x_TD, weight_VD.to(x_TD.dtype))
    log_p_TV = logits_TV.to(torch.promote_types(x_TD.dtype, torch.float32)).log_softmax(1)
    counts_T = targets_T != IGNORED
    log_p_T = log_p_TV.gather(1, targets_T.where(counts_T, 0).long()[:, None])[:, 0]
    smoothed_T = -(1 - smoothing) * log_p_T - smoothing * log_p_TV.mean(1)
    return Losses(smoothed_T[counts_T].sum(), -log_p_T.detach()[counts_T].sum())
