"""The loss of R-Drop between matrix products. Axes: C tokens of a chunk, V vocabulary entries.

Rows 2i and 2i + 1 are the two draws of a token: its predictions with different dropout masks.
"""

import numpy as np
import torch
from torch import Tensor

from nmt_cli.loss.plain_loss import IGNORED
from nmt_cli.loss.row_losses import RowLosses, check_targets
from nmt_cli.runtime.kernels.arrays import as_array
from nmt_cli.runtime.kernels.loading import compiled_kernels
from nmt_cli.runtime.threads import in_threads


def r_drop_rows(
    logits_CV: Tensor,
    targets_C: Tensor,
    losses_2C: Tensor,
    smoothing: float,
    grad_scale: Tensor | None,
    gradient: bool,
    *,
    rows: RowLosses,
    r_drop: float,
) -> None:
    """Compute `RowLosses` with R-Drop, for rows that are pairs of draws: half of each draw's loss and NLL, so
    that a pair of rows adds up to the loss of the token.

    rows: computes the cross-entropy where Numba has no kernel: on a GPU, and in other types than fp32 and
        bf16. PyTorch then computes the divergence.
    r_drop: the weight of the divergence.
    """
    compiles = logits_CV.device.type == "cpu" and logits_CV.dtype in (torch.float32, torch.bfloat16)
    if compiles and (kernels := compiled_kernels("loss.cpu_r_drop")):
        check_targets(targets_C, logits_CV.shape[1])
        scale = np.float32(1.0 if grad_scale is None else grad_scale.item())
        arrays = as_array(logits_CV), targets_C.long().numpy(), losses_2C.numpy()
        numbers = np.float32(smoothing), np.float32(r_drop), scale, gradient
        # Both draws in one pass: 4,096 tokens and 10,128 entries take 108 ms on one core, and 97 ms without
        # R-Drop.
        in_threads(lambda first, end: kernels.r_drop_rows(*arrays, *numbers, first, end), len(targets_C) // 2)
        return
    factor = torch.ones((), device=logits_CV.device) if grad_scale is None else grad_scale
    log_p_C2V = logits_CV.to(losses_2C.dtype).log_softmax(1).view(-1, 2, logits_CV.shape[1])
    p_C2V, difference_C2V = log_p_C2V.exp(), log_p_C2V - log_p_C2V.flip(1)
    divergence_C2 = (p_C2V * difference_C2V).sum(2)  # of each draw from the other
    rows(logits_CV, targets_C, losses_2C, smoothing, factor / 2, gradient)
    counts_C = targets_C != IGNORED
    losses_2C /= 2
    losses_2C[0] += (r_drop / 4 * divergence_C2.flatten()).where(counts_C, 0)
    if gradient:
        slope_C2V = p_C2V * (difference_C2V - divergence_C2[:, :, None]) + p_C2V - p_C2V.flip(1)
        logits_CV += (slope_C2V.flatten(0, 1) * (r_drop / 4 * factor)).where(counts_C[:, None], 0)
