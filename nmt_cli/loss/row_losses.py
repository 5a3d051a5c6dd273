"""The CPU's part of the loss between matrix products. Axes: C tokens of a chunk, V vocabulary entries."""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from nmt_cli.loss.plain_loss import IGNORED
from nmt_cli.runtime.kernels.arrays import as_array
from nmt_cli.runtime.kernels.loading import compiled_kernels
from nmt_cli.runtime.threads import in_threads

RowLosses = Callable[[Tensor, Tensor, Tensor, float, Tensor | None, bool], None]
"""A function `rows(logits_CV, targets_C, losses_2C, smoothing, grad_scale, gradient)`.

It writes the smoothed losses and the NLLs of a chunk to row 0 and 1 of `losses_2C`. With `gradient`, it
overwrites `logits_CV` by the gradient of the smoothed losses times `grad_scale` (None is 1). Otherwise it may
leave arbitrary values there. Memory between the rows of `logits_CV` may be overwritten.
"""


def rows(
    logits_CV: Tensor,
    targets_C: Tensor,
    losses_2C: Tensor,
    smoothing: float,
    grad_scale: Tensor | None,
    gradient: bool,
) -> None:
    """Compute `RowLosses` on a CPU, by Numba for fp32 and bf16, otherwise by `plain_rows`.

    Raise `RuntimeError` for a target that is neither IGNORED nor in the vocabulary.
    """
    kernels = (
        compiled_kernels("loss.cpu_row_losses")
        if logits_CV.dtype in (torch.float32, torch.bfloat16)
        else None
    )
    if kernels is None:
        plain_rows(logits_CV, targets_C, losses_2C, smoothing, grad_scale, gradient)
        return
    tokens, entries = logits_CV.shape
    check_targets(targets_C, entries)
    arrays = as_array(logits_CV), targets_C.long().numpy(), losses_2C.numpy(), np.float32(smoothing)
    scale = np.float32(1.0 if grad_scale is None else grad_scale.item())
    in_threads(lambda first, end: kernels.rows(*arrays, scale, gradient, first, end), tokens)


def check_targets(targets_C: Tensor, entries: int) -> None:
    """Raise `RuntimeError` for a target that is neither IGNORED nor one of `entries`."""
    if len(targets_C) and not (targets_C.min() >= IGNORED and targets_C.max() < entries):
        raise RuntimeError(f"a target is out of bounds: {entries} entries, {targets_C.tolist()}")


def plain_rows(
    logits_CV: Tensor,
    targets_C: Tensor,
    losses_2C: Tensor,
    smoothing: float,
    grad_scale: Tensor | None,
    gradient: bool,
) -> None:
    """Compute `RowLosses` for any dtype by PyTorch's operations."""
    z_CV = logits_CV.to(losses_2C.dtype)
    counts_C = targets_C != IGNORED
    # IGNORED is not an index. Index 0 replaces it, and its results are discarded.
    targets_C1 = targets_C.where(counts_C, 0).long()[:, None]
    z_C, mean_C, highest_C = z_CV.gather(1, targets_C1)[:, 0], z_CV.mean(1), z_CV.amax(1)
    # The softmax is a part of the gradient. So the losses are computed from it.
    torch.softmax(z_CV, 1, out=z_CV)
    log_sum_C = highest_C - z_CV.amax(1).log()  # unlike the target's, the highest probability is never 0
    losses_2C[0] = (log_sum_C - (1 - smoothing) * z_C - smoothing * mean_C).where(counts_C, 0)
    losses_2C[1] = (log_sum_C - z_C).where(counts_C, 0)
    if not gradient:
        return
    if smoothing:
        z_CV -= smoothing / z_CV.shape[1]
    z_CV.scatter_add_(1, targets_C1, z_CV.new_full((1, 1), smoothing - 1).expand_as(targets_C1))
    z_CV.masked_fill_(~counts_C[:, None], 0)  # an index of rows would let the host wait for a GPU
    if grad_scale is not None:
        z_CV *= grad_scale
    if z_CV is not logits_CV:
        logits_CV.copy_(z_CV)
