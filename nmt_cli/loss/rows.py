"""What lies between the matrix products of the loss, on a CPU: logits to losses and to their gradient.

Axes: C tokens of a chunk, V entries of the vocabulary.
"""

from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from nmt_cli.loss.reference import IGNORED
from nmt_cli.runtime.kernels.arrays import as_array
from nmt_cli.runtime.kernels.loading import compiled_kernels
from nmt_cli.runtime.threads import in_threads


class RowLosses(Protocol):
    """The part between the matrix products: the logits of a chunk to losses, and in place to their
    gradient."""

    def __call__(
        self,
        logits_CV: Tensor,
        targets_C: Tensor,
        losses_2C: Tensor,
        smoothing: float,
        grad_scale: Tensor | None,
        gradient: bool,
    ) -> None:
        """Write smoothed losses and NLLs to `losses_2C`.

        With `gradient`, `logits_CV` then holds the gradient of the smoothed losses times `grad_scale`; else
        arbitrary values. What lies between its rows may be overwritten.
        """


def rows(
    logits_CV: Tensor,
    targets_C: Tensor,
    losses_2C: Tensor,
    smoothing: float,
    grad_scale: Tensor | None,
    gradient: bool,
) -> None:
    """`RowLosses` by one pass over each row, or by `plain_rows` without Numba and for other types."""
    kernels = compiled_kernels("loss") if logits_CV.dtype in (torch.float32, torch.bfloat16) else None
    if kernels is None:
        plain_rows(logits_CV, targets_C, losses_2C, smoothing, grad_scale, gradient)
        return
    tokens, entries = logits_CV.shape
    if tokens and not (targets_C.min() >= IGNORED and targets_C.max() < entries):
        raise RuntimeError(f"a target is out of bounds: {entries} entries, {targets_C.tolist()}")
    told = as_array(logits_CV), targets_C.long().numpy(), losses_2C.numpy(), np.float32(smoothing)
    scale = np.float32(1.0 if grad_scale is None else grad_scale.item())
    in_threads(lambda first, behind: kernels.rows(*told, scale, gradient, first, behind), tokens)


def plain_rows(
    logits_CV: Tensor,
    targets_C: Tensor,
    losses_2C: Tensor,
    smoothing: float,
    grad_scale: Tensor | None,
    gradient: bool,
) -> None:
    """`RowLosses` of PyTorch's operations, in place, since passes over a chunk in the cache are cheap."""
    z_CV = logits_CV.to(losses_2C.dtype)
    counts_C = targets_C != IGNORED
    # IGNORED is no index: any that is one will do, its results are thrown away.
    targets_C1 = targets_C.where(counts_C, 0).long()[:, None]
    z_C, mean_C, highest_C = z_CV.gather(1, targets_C1)[:, 0], z_CV.mean(1), z_CV.amax(1)
    # The softmax is the gradient's first half, so the losses are made of it and not the other way round.
    torch.softmax(z_CV, 1, out=z_CV)
    log_sum_C = highest_C - z_CV.amax(1).log()  # the likeliest entry never vanishes, as that of a target may
    losses_2C[0] = (log_sum_C - (1 - smoothing) * z_C - smoothing * mean_C).where(counts_C, 0)
    losses_2C[1] = (log_sum_C - z_C).where(counts_C, 0)
    if not gradient:
        return
    if smoothing:
        z_CV -= smoothing / z_CV.shape[1]
    z_CV.scatter_add_(1, targets_C1, z_CV.new_full((1, 1), smoothing - 1).expand_as(targets_C1))
    z_CV.index_fill_(0, (~counts_C).nonzero()[:, 0], 0)
    if grad_scale is not None:
        z_CV *= grad_scale
    if z_CV is not logits_CV:
        logits_CV.copy_(z_CV)
