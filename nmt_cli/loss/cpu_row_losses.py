"""`RowLosses` for a CPU, compiled by Numba. Each row of logits stays in the fastest cache."""

import math

import numpy as np
from numba import boolean, float32, int64, uint16, void

from nmt_cli.runtime.kernels.compiled import OPTIONS, as_float32, exp, maximum, njit, rounded_as


def _signature(stored):
    """Return the types of the arguments of `rows` for logits of the type `stored`."""
    return void(stored[:, ::1], int64[::1], float32[:, :], float32, float32, boolean, int64, int64)


@njit([_signature(float32), _signature(uint16)], **OPTIONS)
def rows(logits_CV, targets_C, losses_2C, smoothing, scale, gradient, first, end):
    """Write the smoothed losses and NLLs of the rows in [first, end) to row 0 and 1 of `losses_2C`.

    If `gradient`, overwrite the logits by the gradient of the smoothed losses times `scale`. Rows with a
    negative target get 0. Logits are float32, or bfloat16 with its bits as uint16.
    """
    entries = logits_CV.shape[1]
    z_V = np.empty(entries, np.float32)
    for row in range(first, end):
        logits_V, target = logits_CV[row], targets_C[row]
        total = np.float32(0)
        for v in range(entries):
            z_V[v] = as_float32(logits_V[v])
            total += z_V[v]
        top, mean, target_logit = maximum(z_V), total / np.float32(entries), z_V[max(target, 0)]
        total = np.float32(0)
        for v in range(entries):
            z_V[v] = exp(z_V[v] - top)
            total += z_V[v]
        log_sum = top + np.float32(math.log(total))
        losses_2C[0, row] = log_sum - (np.float32(1) - smoothing) * target_logit - smoothing * mean
        losses_2C[1, row] = log_sum - target_logit
        factor, uniform = scale / total, scale * smoothing / np.float32(entries)
        if target < 0:
            losses_2C[:, row] = 0
            factor = uniform = np.float32(0)
        if gradient:
            like = logits_V[0]
            for v in range(entries):
                logits_V[v] = rounded_as(z_V[v] * factor - uniform, like)
            if target >= 0:
                peak = (np.float32(1) - smoothing) * scale
                logits_V[target] = rounded_as(z_V[target] * factor - uniform - peak, like)
