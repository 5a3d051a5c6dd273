"""Dropout for the CPU, compiled by Numba, in one pass over each row."""

import numpy as np
from numba import float32, int32, int64, void

from nmt_cli.attention.dropout_hash import GOLDEN, MIX_1, MIX_2, OFFSET
from nmt_cli.runtime.kernels.compiled import OPTIONS, njit

# As uint32, since Numba would compute with the int64 of a plain number.
GOLDEN_32, OFFSET_32, MIX_1_32, MIX_2_32 = (np.uint32(word) for word in (GOLDEN, OFFSET, MIX_1, MIX_2))
HALF, LOW = np.uint32(16), np.uint32(0xFFFF)


@njit(**OPTIONS)
def _absorbed(state, word):
    """Return the next uint32 state of the hash in `dropout_masks.hashed`."""
    mixed = np.uint32(np.uint32(state + np.uint32(np.uint32(word) * GOLDEN_32)) + OFFSET_32)
    mixed = np.uint32((mixed ^ (mixed >> HALF)) * MIX_1_32)
    mixed = np.uint32((mixed ^ (mixed >> np.uint32(13))) * MIX_2_32)
    return np.uint32(mixed ^ (mixed >> HALF))


ROWS = float32[:, ::1], float32[:, ::1], int64, int32[::1], int32[::1], int32, float32


@njit(void(*ROWS), **OPTIONS)
def drop_rows(x_TD, out_TD, seed, keys_T, positions_T, levels, factor):
    """Write the result of `plain_relu_and_dropout.dropped` to `out_TD`.

    An element whose 16 random bits are below `levels` becomes 0. Others are multiplied by `factor`.
    """
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
