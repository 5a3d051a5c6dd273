"""Layer norm, rounding to integers and dropout for the CPU, compiled by Numba, in one pass over each row."""

import math

import numpy as np
from numba import float32, int32, int64, uint8, void

from nmt_cli.runtime.kernels.compiled import OPTIONS, bits_of, float_of, njit

NORM = float32[::1], float32[::1], float32
"""Types of the weights and biases of layer norm [D], and of its epsilon."""


@njit(**OPTIONS)
def _sum(x_D):
    """Return the sum of a row. The compiler may add in any order here, but not in `normed_row`."""
    total = np.float32(0)
    for d in range(len(x_D)):
        total += x_D[d]
    return total


@njit(**OPTIONS)
def _sum_of_squares(x_D, mean):
    """Return the sum of the squared differences of a row from `mean`."""
    squares = np.float32(0)
    for d in range(len(x_D)):
        squares += (x_D[d] - mean) * (x_D[d] - mean)
    return squares


@njit(**OPTIONS | {"fastmath": {"contract"}})
def normed_row(x_D, out_D, weight_D, bias_D, epsilon):
    """Write the layer norm of a row to `out_D`, which may be `x_D`. All callers get the same bits."""
    mean = _sum(x_D) / np.float32(len(x_D))
    scale = np.float32(1) / np.float32(math.sqrt(_sum_of_squares(x_D, mean) / np.float32(len(x_D)) + epsilon))
    for d in range(len(x_D)):
        out_D[d] = (x_D[d] - mean) * scale * weight_D[d] + bias_D[d]


@njit(void(float32[:, ::1], float32[:, ::1], *NORM), **OPTIONS)
def normed(x_TD, out_TD, weight_D, bias_D, epsilon):
    """Write the layer norm of each row of `x_TD` to `out_TD`. `weight_D` and `bias_D` belong to the norm."""
    for t in range(len(x_TD)):
        normed_row(x_TD[t], out_TD[t], weight_D, bias_D, epsilon)


@njit(void(float32[:, ::1], float32[:, ::1], *NORM), **OPTIONS)
def normed_sum(x_TD, y_TD, weight_D, bias_D, epsilon):
    """Replace each row of `y_TD` by the layer norm of its sum with the row of `x_TD`."""
    for t in range(len(x_TD)):
        y_D = y_TD[t]
        for d in range(len(y_D)):
            y_D[d] += x_TD[t, d]
        normed_row(y_D, y_D, weight_D, bias_D, epsilon)


@njit(**OPTIONS)
def rounded_row(x_C, levels, zero, integers_C):
    """Write a row as integers from -`levels` to `levels`, plus `zero`. Return the scale of the row.

    The row is about (integer - zero) x scale. The scale is the largest absolute value divided by `levels`.
    """
    # Without their sign bits, floats sort as integers, with nan last. A maximum of integers is vectorised.
    highest = np.int32(1)  # not 0, which would be divided by
    for c in range(len(x_C)):
        highest = max(highest, np.int32(bits_of(x_C[c]) & 0x7FFFFFFF))
    top = float_of(highest)
    # Without the limit, the inverse of a tiny row is infinite. With it, such a row becomes zeros.
    inverse = min(np.float32(levels) / top, np.float32(1e36))
    for c in range(len(x_C)):
        integers_C[c] = np.int32(np.floor(x_C[c] * inverse + np.float32(0.5))) + zero
    return top / np.float32(levels)


@njit(void(float32[:, ::1], int32, int32, uint8[:, ::1], float32[::1]), **OPTIONS)
def round_rows(x_RC, levels, zero, integers_RC, scales_R):
    """Write each row to `integers_RC` as in `rounded_row`, and its scale to `scales_R`."""
    for row in range(len(x_RC)):
        scales_R[row] = rounded_row(x_RC[row], levels, zero, integers_RC[row])


@njit(void(float32[:, ::1], float32[::1], float32[::1]), **OPTIONS)
def scale_rows(x_RC, scales_R, bias_C):
    """Multiply each row of `x_RC` by its scale, then add `bias_C` to the row, in place."""
    for row in range(len(x_RC)):
        for c in range(x_RC.shape[1]):
            x_RC[row, c] = x_RC[row, c] * scales_R[row] + bias_C[c]


GOLDEN, OFFSET = np.uint32(0x9E3779B1), np.uint32(0x7F4A7C15)
MIX_1, MIX_2 = np.uint32(0x85EBCA6B), np.uint32(0xC2B2AE35)
HALF, LOW = np.uint32(16), np.uint32(0xFFFF)


@njit(**OPTIONS)
def _absorbed(state, word):
    """Return the next uint32 state of the hash in `attention.dropout.hashed`."""
    mixed = np.uint32(np.uint32(state + np.uint32(np.uint32(word) * GOLDEN)) + OFFSET)
    mixed = np.uint32((mixed ^ (mixed >> HALF)) * MIX_1)
    mixed = np.uint32((mixed ^ (mixed >> np.uint32(13))) * MIX_2)
    return np.uint32(mixed ^ (mixed >> HALF))


ROWS = float32[:, ::1], float32[:, ::1], int64, int32[::1], int32[::1], int32, float32


@njit(void(*ROWS), **OPTIONS)
def drop_rows(x_TD, out_TD, seed, keys_T, positions_T, levels, factor):
    """Write the result of `reference.dropped` to `out_TD`. An element whose 16 random bits are below `levels`
    becomes 0. Others are multiplied by `factor`."""
    width, zero, limit = x_TD.shape[1], np.float32(0), np.uint32(levels)
    half = (width + 1) // 2
    first = _absorbed(_absorbed(np.uint32(0), seed & 0xFFFFFFFF), seed >> 32 & 0xFFFFFFFF)
    for t in range(len(x_TD)):
        state = _absorbed(_absorbed(first, keys_T[t]), positions_T[t])
        x_D, out_D = x_TD[t], out_TD[t]
        # Hashes are computed twice, since a single loop over both halves is slower.
        for d in range(half):
            keep = _absorbed(state, d) >> HALF >= limit
            out_D[d] = x_D[d] * (factor if keep else zero)
        for d in range(width - half):
            keep = _absorbed(state, d) & LOW >= limit
            out_D[half + d] = x_D[half + d] * (factor if keep else zero)
