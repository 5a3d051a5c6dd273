"""`RowLosses` for a CPU, compiled by Numba: each row of logits stays in the nearest cache meanwhile."""

import math

import numpy as np
from numba import boolean, float32, int64, uint16, void

from nmt_cli.runtime.kernels.compiled import OPTIONS, exp, float_at, kept_as, njit, number, order_of

LOWEST = np.int32(-(1 << 31))


def _signature(kept):
    return void(kept[:, ::1], int64[::1], float32[:, :], float32, float32, boolean, int64, int64)


@njit([_signature(float32), _signature(uint16)], **OPTIONS)
def rows(logits_CV, targets_C, losses_2C, smoothing, scale, gradient, first, behind):
    """The rows from `first` to before `behind`; negative targets carry no loss. bfloat16 comes as uint16."""
    entries = logits_CV.shape[1]
    z_V = np.empty(entries, np.float32)
    for row in range(first, behind):
        logits_V, target = logits_CV[row], targets_C[row]
        highest, total = LOWEST, np.float32(0)
        for v in range(entries):
            z_V[v] = number(logits_V[v])
            total += z_V[v]
        for v in range(entries):
            highest = max(highest, order_of(z_V[v]))
        top, mean, chosen = float_at(highest), total / np.float32(entries), z_V[max(target, 0)]
        total = np.float32(0)
        for v in range(entries):
            z_V[v] = exp(z_V[v] - top)
            total += z_V[v]
        log_sum = top + np.float32(math.log(total))
        losses_2C[0, row] = log_sum - (np.float32(1) - smoothing) * chosen - smoothing * mean
        losses_2C[1, row] = log_sum - chosen
        factor, each = scale / total, scale * smoothing / np.float32(entries)
        if target < 0:
            losses_2C[:, row] = 0
            factor = each = np.float32(0)
        if gradient:
            like = logits_V[0]
            for v in range(entries):
                logits_V[v] = kept_as(z_V[v] * factor - each, like)
            if target >= 0:
                wanted = (np.float32(1) - smoothing) * scale
                logits_V[target] = kept_as(z_V[target] * factor - each - wanted, like)
