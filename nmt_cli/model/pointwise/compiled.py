"""What lies between matrix products, compiled for the CPU by Numba: one pass over each row, in one thread."""

import math

import numpy as np
from numba import float32, int32, uint8, void

from nmt_cli.runtime.kernels.compiled import OPTIONS, bits_of, float_of, njit

NORM = float32[::1], float32[::1], float32
"""Weights and biases of the channels, and what is added to the variance."""


@njit(**OPTIONS)
def _sum(x_D):
    total = np.float32(0)
    for d in range(len(x_D)):
        total += x_D[d]
    return total


@njit(**OPTIONS)
def _sum_of_squares(x_D, mean):
    squares = np.float32(0)
    for d in range(len(x_D)):
        squares += (x_D[d] - mean) * (x_D[d] - mean)
    return squares


@njit(**OPTIONS | {"fastmath": {"contract"}})
def normed_row(x_D, out_D, weight_D, bias_D, epsilon):
    """Write the layer norm of a row. Factors keep their order, so that every caller gets the same bits."""
    mean = _sum(x_D) / np.float32(len(x_D))
    scale = np.float32(1) / np.float32(math.sqrt(_sum_of_squares(x_D, mean) / np.float32(len(x_D)) + epsilon))
    for d in range(len(x_D)):
        out_D[d] = (x_D[d] - mean) * scale * weight_D[d] + bias_D[d]


@njit(void(float32[:, ::1], float32[:, ::1], *NORM), **OPTIONS)
def normed(x_TD, out_TD, weight_D, bias_D, epsilon):
    """Write the layer norm of each row of `x_TD` to `out_TD`."""
    for t in range(len(x_TD)):
        normed_row(x_TD[t], out_TD[t], weight_D, bias_D, epsilon)


@njit(void(float32[:, ::1], float32[:, ::1], *NORM), **OPTIONS)
def normed_sum(x_TD, y_TD, weight_D, bias_D, epsilon):
    """Replace each row of `y_TD` by the layer norm of itself plus that of `x_TD`."""
    for t in range(len(x_TD)):
        y_D = y_TD[t]
        for d in range(len(y_D)):
            y_D[d] += x_TD[t, d]
        normed_row(y_D, y_D, weight_D, bias_D, epsilon)


@njit(**OPTIONS)
def rounded_row(x_C, levels, zero, whole_C):
    """Write a row as whole numbers from -`levels` to `levels`, plus `zero`; returns the scale that these are
    to be multiplied with."""
    # Without their signs, floats are in the order of their bits, nan above all; and a maximum of integers is
    # vectorised.
    most = np.int32(1)  # not 0, which nothing can be divided by
    for c in range(len(x_C)):
        most = max(most, np.int32(bits_of(x_C[c]) & 0x7FFFFFFF))
    top = float_of(most)
    # A row so small that this were infinite is as good as zeros.
    inverse = min(np.float32(levels) / top, np.float32(1e36))
    for c in range(len(x_C)):
        whole_C[c] = np.int32(np.floor(x_C[c] * inverse + np.float32(0.5))) + zero
    return top / np.float32(levels)


@njit(void(float32[:, ::1], int32, int32, uint8[:, ::1], float32[::1]), **OPTIONS)
def round_rows(x_RC, levels, zero, whole_RC, scales_R):
    """Write each row as `rounded_row` does."""
    for row in range(len(x_RC)):
        scales_R[row] = rounded_row(x_RC[row], levels, zero, whole_RC[row])


@njit(void(float32[:, ::1], float32[::1], float32[::1]), **OPTIONS)
def scale_rows(x_RC, scales_R, added_C):
    """Multiply each row by its scale, then add `added_C`."""
    for row in range(len(x_RC)):
        for c in range(x_RC.shape[1]):
            x_RC[row, c] = x_RC[row, c] * scales_R[row] + added_C[c]
