"""`r_drop_rows` for a CPU, compiled by Numba. Both rows of logits stay in the fastest cache."""

import math

import numpy as np
from numba import boolean, float32, int64, uint16, void

from nmt_cli.runtime.kernels.compiled import OPTIONS, as_float32, exp, maximum, njit, rounded_as


@njit(**OPTIONS)
def _log_softmax(logits_V, log_p_V, p_V):
    """Write the log-probabilities and probabilities of a row. Return the mean log-probability."""
    total, mean = np.float32(0), np.float32(0)
    for v in range(len(logits_V)):
        log_p_V[v] = as_float32(logits_V[v])
    top = maximum(log_p_V)
    for v in range(len(logits_V)):
        p_V[v] = exp(log_p_V[v] - top)
        total += p_V[v]
    log_sum = top + np.float32(math.log(total))
    for v in range(len(logits_V)):
        log_p_V[v] -= log_sum
        p_V[v] /= total
        mean += log_p_V[v]
    return mean / np.float32(len(logits_V))


@njit(**OPTIONS)
def _divergence(logits_V, log_p_V, p_V, log_q_V, q_V, target, smoothing, r_drop, scale, gradient):
    """Return the KL divergence of `p_V` from `q_V`. If `gradient`, overwrite the logits of `p_V` by the
    gradient of the losses of both draws."""
    half, divergence, like = np.float32(0.5), np.float32(0), logits_V[0]
    for v in range(len(p_V)):
        divergence += p_V[v] * (log_p_V[v] - log_q_V[v])
    if gradient:
        weight, uniform = half * half * r_drop, half * smoothing / np.float32(len(p_V))
        peak = half * (np.float32(1) - smoothing)
        for v in range(len(p_V)):
            slope = p_V[v] * (log_p_V[v] - log_q_V[v] - divergence) + p_V[v] - q_V[v]
            expected = uniform + (peak if v == target else np.float32(0))
            logits_V[v] = rounded_as((weight * slope + half * p_V[v] - expected) * scale, like)
    return divergence


def _signature(stored):
    """Return the types of the arguments of `r_drop_rows` for logits of the type `stored`."""
    numbers = float32, float32, float32, boolean, int64, int64
    return void(stored[:, ::1], int64[::1], float32[:, :], *numbers)


@njit([_signature(float32), _signature(uint16)], **OPTIONS)
def r_drop_rows(logits_CV, targets_C, losses_2C, smoothing, r_drop, scale, gradient, first, end):
    """Write the losses and gradients of the tokens in [first, end), as `r_drop.r_drop_rows` defines them.

    Rows with a negative target get 0. Logits are float32, or bfloat16 with its bits as uint16.
    """
    half = np.float32(0.5)
    shape = 2, logits_CV.shape[1]
    log_p_2V, p_2V = np.empty(shape, np.float32), np.empty(shape, np.float32)
    for row in range(2 * first, 2 * end, 2):
        target, logits_2V, losses_22 = targets_C[row], logits_CV[row : row + 2], losses_2C[:, row : row + 2]
        if target < 0:
            losses_22[:] = 0
            logits_2V[:] = rounded_as(np.float32(0), logits_2V[0, 0])
            continue
        for i in range(2):
            mean = _log_softmax(logits_2V[i], log_p_2V[i], p_2V[i])
            losses_22[1, i] = -half * log_p_2V[i, target]
            losses_22[0, i] = (np.float32(1) - smoothing) * losses_22[1, i] - half * smoothing * mean
        for i in range(2):
            p, q = (log_p_2V[i], p_2V[i]), (log_p_2V[1 - i], p_2V[1 - i])
            options = target, smoothing, r_drop, scale, gradient
            losses_22[0, i] += np.float32(0.25) * r_drop * _divergence(logits_2V[i], *p, *q, *options)
