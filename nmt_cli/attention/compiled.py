"""What a step of decoding computes besides matrix products, compiled for the CPU by Numba.

B sentences have cached keys and values of H heads at M nodes each; R rows are the newest tokens of their
hypotheses (`cached.py` says more). Attention reads those nodes only that a row sees, its path, and rows of
one sentence are neighbours, so that the nodes they share are read from memory once. Cached numbers are
float32, or bfloat16 as uint16, since NumPy has no bfloat16.
"""

import math

import numpy as np
from llvmlite import ir
from numba import boolean, float32, int32, int64, njit, types, uint8, uint16, void
from numba.extending import intrinsic

# Kernels that Python calls are given their signatures, and so are compiled when this module is imported:
# before worker processes are forked, once for all of them.
OPTIONS = {
    "cache": True,
    # By default a division by zero raises, and a loop with such a check is not vectorised.
    "error_model": "numpy",
    "fastmath": {"reassoc", "contract", "arcp", "nsz"},  # all but what takes nan and infinity for impossible
    "nogil": True,
}

LOG2_E = np.float32(1 / math.log(2))
LN_2 = np.float32(math.log(2))


@intrinsic
def _number(context, kept):
    """A cached number, float32 or the bits of a bfloat16, as float32."""

    def same(context, builder, signature, arguments):
        return arguments[0]

    def widened(context, builder, signature, arguments):
        # bfloat16 is the upper half of float32's bits.
        bits = builder.zext(arguments[0], ir.IntType(32))
        return builder.bitcast(builder.shl(bits, ir.Constant(ir.IntType(32), 16)), ir.FloatType())

    return float32(kept), same if kept == types.float32 else widened


@njit(void(boolean[:, :, :], int64[::1], int32[:, ::1], int32[::1]), **OPTIONS)
def list_nodes(seen_BNM, places_R, nodes_RM, counts_R):
    """Write the nodes that the row at each place sees, in ascending order, and how many they are."""
    places = seen_BNM.shape[1]
    for row in range(len(places_R)):
        count = 0
        for node in range(seen_BNM.shape[2]):
            if seen_BNM[places_R[row] // places, places_R[row] % places, node]:
                nodes_RM[row, count] = node
                count += 1
        counts_R[row] = count


@intrinsic
def _two_to_the(context, power):
    """2^power as float32, for an int32 from -126 to 127."""

    def made(context, builder, signature, arguments):
        # A float32 whose fraction is 0: only its exponent, which is stored plus 127, needs to be written.
        exponent = builder.add(arguments[0], ir.Constant(ir.IntType(32), 127))
        return builder.bitcast(builder.shl(exponent, ir.Constant(ir.IntType(32), 23)), ir.FloatType())

    return float32(power), made


@intrinsic
def _float_of(context, bits):
    """The float32 that has the bits of an int32."""

    def made(context, builder, signature, arguments):
        return builder.bitcast(arguments[0], ir.FloatType())

    return float32(bits), made


@njit(**OPTIONS)
def _exp(x):
    """e^x for x of at most 0, with an error of at most 1e-7; unlike `math.exp`, vectorised where it is in a
    loop."""
    x = np.float32(-87.0) if x < np.float32(-87.0) else x  # below, 2^twos has no bits; nan passes
    twos = np.floor(x * LOG2_E + np.float32(0.5))
    rest = x - twos * LN_2
    # A Taylor series is exact enough here, as the rest is at most ln(2) / 2 from 0.
    total = np.float32(1 / 5040)
    for factorial in (720, 120, 24, 6, 2, 1, 1):
        total = total * rest + np.float32(1 / factorial)
    return total * _two_to_the(np.int32(twos))


@njit(**OPTIONS)
def _walk(query_K, keys_MK, values_MV, nodes, scores, mixed_V):
    """Attention of one row with one head over the given nodes of its sentence, written to `mixed_V`.

    `scores` is room to work in, for at least as many numbers as there are nodes.
    """
    top = np.float32(-np.inf)
    for i in range(len(nodes)):
        key_K = keys_MK[nodes[i]]
        score = np.float32(0)
        for k in range(len(query_K)):
            score += query_K[k] * _number(key_K[k])
        scores[i] = score
        top = max(top, score)
    total = np.float32(0)
    for i in range(len(nodes)):
        scores[i] = _exp(scores[i] - top)
        total += scores[i]
    mixed_V[:] = 0
    for i in range(len(nodes)):
        value_V = values_MV[nodes[i]]
        weight = scores[i] / total
        for v in range(len(mixed_V)):
            mixed_V[v] += weight * _number(value_V[v])


def _attend_signature(kept):
    four = kept[:, :, :, ::1]
    rows = int64[::1], int32[:, ::1], int32[::1]
    return void(float32[:, :, :], four, four, float32[:, :, ::1], *rows)


@njit([_attend_signature(float32), _attend_signature(uint16)], **OPTIONS)
def attend(query_RHK, keys_BHMK, values_BHMV, mixed_RHV, sentences_R, nodes_RM, counts_R):
    """Write to `mixed_RHV` the attention of each row over its first `counts_R` nodes of `nodes_RM`.

    Rows of one sentence must be neighbours.
    """
    rows, heads, width = query_RHK.shape
    scale = np.float32(1.0 / math.sqrt(width))
    query_K = np.empty(width, np.float32)
    mixed_V = np.empty(mixed_RHV.shape[2], np.float32)
    scores = np.empty(nodes_RM.shape[1], np.float32)
    first = 0
    while first < rows:
        sentence = sentences_R[first]
        behind = first + 1
        while behind < rows and sentences_R[behind] == sentence:
            behind += 1
        # All rows with one head, then the next: what they share is still in the processor's cache.
        for head in range(heads):
            for row in range(first, behind):
                for k in range(width):
                    query_K[k] = query_RHK[row, head, k] * scale
                nodes = nodes_RM[row, : counts_R[row]]
                _walk(query_K, keys_BHMK[sentence, head], values_BHMV[sentence, head], nodes, scores, mixed_V)
                mixed_RHV[row, head] = mixed_V
        first = behind


@njit(void(float32[:, ::1], float32[::1]), **OPTIONS)
def log_softmax(x_RV, tops_R):
    """Replace each row by its log-softmax; `tops_R` are the rows' greatest values."""
    for row in range(len(x_RV)):
        x_V, top, total = x_RV[row], tops_R[row], np.float32(0)
        for v in range(len(x_V)):
            x_V[v] -= top  # not together with `rest`: their sum would round small differences away
            total += _exp(x_V[v])
        rest = np.float32(math.log(total))
        for v in range(len(x_V)):
            x_V[v] -= rest


def _round_signature(whole):
    return void(float32[:, ::1], int32[:, ::1], int32, int32, whole[:, ::1], float32[::1])


@njit([_round_signature(float32), _round_signature(uint8)], **OPTIONS)
def round_rows(x_RC, bits_RC, levels, zero, whole_RC, scales_R):
    """Write each row as whole numbers from -`levels` to `levels`, plus `zero`, and the scale that they are to
    be multiplied with.

    `bits_RC` are the bits of `x_RC`.
    """
    for row in range(len(x_RC)):
        # Without their signs, floats are in the order of their bits, nan above all; and a maximum of integers
        # is vectorised.
        most = np.int32(1)  # not 0, which nothing can be divided by
        for c in range(x_RC.shape[1]):
            most = max(most, np.int32(bits_RC[row, c] & 0x7FFFFFFF))
        top = _float_of(most)
        scales_R[row] = top / np.float32(levels)
        # A row so small that this were infinite is as good as zeros.
        inverse = min(np.float32(levels) / top, np.float32(1e36))
        for c in range(x_RC.shape[1]):
            whole_RC[row, c] = np.int32(np.floor(x_RC[row, c] * inverse + np.float32(0.5))) + zero


@njit(void(float32[:, ::1], float32[::1], float32[::1]), **OPTIONS)
def scale_rows(x_RC, scales_R, added_C):
    """Multiply each row by its scale, then add `added_C`."""
    for row in range(len(x_RC)):
        for c in range(x_RC.shape[1]):
            x_RC[row, c] = x_RC[row, c] * scales_R[row] + added_C[c]
