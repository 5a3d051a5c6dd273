"""What a step of decoding computes besides products of matrices, compiled for the processor by Numba.

In attention over what is kept from step to step, each row walks its path, the keys that it sees, and reads no
others; the rows of a sentence come one after another, so that what they share is read from memory once. Kept
numbers are float32, or bfloat16 as uint16.
"""

import math

import numpy as np
from llvmlite import ir
from numba import boolean, float32, int32, int64, njit, types, uint16, void
from numba.extending import intrinsic

OPTIONS = {
    "cache": True,
    "error_model": "numpy",
    "fastmath": {"reassoc", "contract", "arcp", "nsz"},  # all but what takes nan and infinity for impossible
    "nogil": True,
}

LOG2_E = np.float32(1 / math.log(2))
LN_2 = np.float32(math.log(2))


@intrinsic
def _number(context, kept):
    """What is kept, as float32."""

    def same(context, builder, signature, arguments):
        return arguments[0]

    def widened(context, builder, signature, arguments):
        bits = builder.zext(arguments[0], ir.IntType(32))
        return builder.bitcast(builder.shl(bits, ir.Constant(ir.IntType(32), 16)), ir.FloatType())

    return float32(kept), same if kept == types.float32 else widened


@njit(void(boolean[:, :, :], int64[::1], int32[:, ::1], int32[::1]), **OPTIONS)
def list_nodes(seen_BNM, places_R, nodes_RM, counts_R):
    """Write down which nodes the row at each place sees, and how many."""
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
    """Of a whole power, int32, as float32."""

    def made(context, builder, signature, arguments):
        exponent = builder.add(arguments[0], ir.Constant(ir.IntType(32), 127))
        return builder.bitcast(builder.shl(exponent, ir.Constant(ir.IntType(32), 23)), ir.FloatType())

    return float32(power), made


@njit(**OPTIONS)
def _exp(x):
    """e^x for x of at most 0, within 1e-7 of it; loops take many at a time, as of `math.exp` they do not."""
    x = np.float32(-87.0) if x < np.float32(-87.0) else x  # which is next to nothing; and nan stays nan
    twos = np.floor(x * LOG2_E + np.float32(0.5))
    rest = x - twos * LN_2
    total = np.float32(1 / 5040)
    for factorial in (720, 120, 24, 6, 2, 1, 1):
        total = total * rest + np.float32(1 / factorial)
    return total * _two_to_the(np.int32(twos))


@njit(**OPTIONS)
def _walk(query_K, keys_MK, values_MV, nodes, scores, mixed_V):
    """What a row sees with one head, keys and values being those of its sentence."""
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
    """Write what each row of a sentence sees on its path."""
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
    """Put the logarithms of each row's softmax in its place; `tops_R` are the most in each row."""
    for row in range(len(x_RV)):
        x_V, top, total = x_RV[row], tops_R[row], np.float32(0)
        for v in range(len(x_V)):
            x_V[v] -= top  # and not with the rest below: their sum would round away small differences
            total += _exp(x_V[v])
        rest = np.float32(math.log(total))
        for v in range(len(x_V)):
            x_V[v] -= rest
