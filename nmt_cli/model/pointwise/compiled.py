"""What lies between matrix products, compiled for the CPU by Numba: one pass over each row, in one thread."""

import math

import numpy as np
from numba import float32, njit, void

from nmt_cli.machine.compiled import OPTIONS

NORM = float32[::1], float32[::1], float32
"""Weights and biases of the channels, and what is added to the variance."""


@njit(**OPTIONS)
def normed_row(x_D, out_D, weight_D, bias_D, epsilon):
    total = np.float32(0)
    for d in range(len(x_D)):
        total += x_D[d]
    mean = total / np.float32(len(x_D))
    squares = np.float32(0)
    for d in range(len(x_D)):
        squares += (x_D[d] - mean) * (x_D[d] - mean)
    scale = np.float32(1) / np.float32(math.sqrt(squares / np.float32(len(x_D)) + epsilon))
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
