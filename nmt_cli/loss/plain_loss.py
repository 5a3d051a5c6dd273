"""The definition of the loss in plain PyTorch. It holds all logits at once and runs on any device."""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

IGNORED = -1
"""The target of padding. It has no loss and no gradient."""


class LossSums(NamedTuple):
    """Sums over tokens, in fp32 (float64 for float64 features). Only the smoothed loss has gradients."""

    smoothed: Tensor
    nll: Tensor


def cross_entropy(
    x_TD: Tensor, weight_VD: Tensor, targets_T: Tensor, *, smoothing: float, grad_scale: Tensor | None = None
) -> LossSums:
    """Return the label-smoothed loss and the NLL, summed over the tokens whose target is not IGNORED.

    The target has probability 1 - `smoothing`, and each entry `smoothing` / V more. `grad_scale` is unused.
    """
    logits_TV = F.linear(x_TD, weight_VD.to(x_TD.dtype))
    log_p_TV = logits_TV.to(torch.promote_types(x_TD.dtype, torch.float32)).log_softmax(1)
    counts_T = targets_T != IGNORED
    log_p_T = log_p_TV.gather(1, targets_T.where(counts_T, 0).long()[:, None])[:, 0]
    smoothed_T = -(1 - smoothing) * log_p_T - smoothing * log_p_TV.mean(1)
    return LossSums(smoothed_T[counts_T].sum(), -log_p_T.detach()[counts_T].sum())
