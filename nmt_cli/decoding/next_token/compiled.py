"""Log-softmax and the highest values of a row, compiled for the CPU by Numba.

R rows, V entries of the vocabulary, C highest values of a row. The reference is PyTorch, in `dispatch.py`.
"""

import math

import numpy as np
from numba import float32, int64, void

from nmt_cli.runtime.kernels.compiled import OPTIONS, exp, njit


@njit(void(float32[:, ::1], float32[::1]), **OPTIONS)
def log_softmax(x_RV, maxima_R):
    """Replace each row by its log-softmax. `maxima_R` are the maxima of the rows."""
    for row in range(len(x_RV)):
        x_V, maximum, total = x_RV[row], maxima_R[row], np.float32(0)
        for v in range(len(x_V)):
            x_V[v] -= maximum  # not together with `log_total`: their sum would round small differences away
            total += exp(x_V[v])
        log_total = np.float32(math.log(total))
        for v in range(len(x_V)):
            x_V[v] -= log_total


CHUNK = 64
"""Number of entries whose comparison with the lowest of the highest values is one operation."""


@njit(**OPTIONS)
def _insert_higher(x_V, begin, end, highest_C, columns_C):
    """Insert the entries in [begin, end) that exceed the last of `highest_C`, which stays descending.

    The earlier of equal entries is first. The last entry is dropped. The indices in `columns_C` move along.
    """
    last = len(highest_C) - 1
    for v in range(begin, end):
        if x_V[v] > highest_C[last]:
            c = last
            while c > 0 and x_V[v] > highest_C[c - 1]:
                highest_C[c] = highest_C[c - 1]
                columns_C[c] = columns_C[c - 1]
                c -= 1
            highest_C[c] = x_V[v]
            columns_C[c] = v


@njit(void(float32[:, ::1], float32[:, ::1], int64[:, ::1]), **OPTIONS)
def top(x_RV, highest_RC, columns_RC):
    """Write the highest values of each row, best first, and their columns. Equal values keep their order."""
    highest_RC[:] = -np.inf
    columns_RC[:] = 0
    for row in range(len(x_RV)):
        x_V, highest_C, columns_C = x_RV[row], highest_RC[row], columns_RC[row]
        begin = 0
        while begin + CHUNK <= len(x_V):
            lowest, higher = highest_C[-1], np.uint32(0)
            for i in range(CHUNK):
                higher |= np.uint32(x_V[begin + i] > lowest)
            if higher:
                _insert_higher(x_V, begin, begin + CHUNK, highest_C, columns_C)
            begin += CHUNK
        _insert_higher(x_V, begin, len(x_V), highest_C, columns_C)
