"""The operations of a Transformer's layers for a team of threads, compiled for the CPU by Numba.

A function with `team` and `phase` is one phase of the work, or two (`team.py`). All threads call it with the
same arguments, and it returns the number of the next phase. The reference is `nmt_cli/model`.

Axes: R rows, each a token. D model width, C columns, I inputs, O outputs, K and V channels of keys and values
of a head. N nodes: a node is a cached token, a row of an array of keys and values.
"""

import math
from collections import namedtuple

import numpy as np
from numba import boolean, float32, int32, int64, types, uint8

from nmt_cli.engine.kernels.products import BLOCK, OFFSET, add_bytes, add_floats
from nmt_cli.engine.kernels.team import next_unit, take
from nmt_cli.runtime.kernels.compiled import OPTIONS, bits_of, exp, float_of, njit

RELU, GELU, GELU_TANH, SWISH, NONE = (np.int64(number) for number in range(5))
"""Activations. `packing.ACTIVATIONS` has them in the same order."""

Weights = namedtuple("Weights", "matrices floats sums norms epsilon rms")
"""The weights of a model. A row of `matrices` describes a matrix: the address of the packed weights, inputs,
outputs, and the indices in `floats` of its first bias and of its first scale, -1 for fp32. `sums` has, at the
index of each bias, the sum of the 8-bit weights of the output. `norms` has weight and bias of all norms
[norms, 2, D]. `rms` is True for RMSNorm.
"""

ADDRESS, INPUTS, OUTPUTS, BIAS, SCALE = (np.int64(number) for number in range(5))
"""Columns of `Weights.matrices`."""

WEIGHTS_TYPE = types.NamedTuple(
    (int64[:, ::1], float32[::1], int32[::1], float32[:, :, ::1], float32, boolean), Weights
)

Work = namedtuple("Work", "buffers bytes_RC scales_R")
"""Memory of all rows that the threads share: `buffers` are arrays [R, C], see below. `bytes_RC` and
`scales_R` are the rounded inputs of a product with 8-bit weights."""

X, INPUT, WIDE, MIXED, Y, LOGITS = (np.int64(number) for number in range(6))
"""Indices of buffers: the values between layers, the input of the next sub-layer, projections, the result of
attention, the output of a sub-layer, and the logits of the vocabulary."""

WORK_TYPE = types.NamedTuple((types.UniTuple(float32[:, ::1], 6), uint8[:, ::1], float32[::1]), Work)

LEVELS = np.float32(127)
"""8-bit inputs are integers from -127 to 127, times the scale of the row."""


@njit(**OPTIONS)
def _activated(x, activation):
    if activation == RELU:
        return max(x, np.float32(0))
    if activation == SWISH:
        return x / (np.float32(1) + np.float32(math.exp(-x)))
    if activation == GELU:
        return np.float32(0.5) * x * (np.float32(1) + np.float32(math.erf(x * np.float32(math.sqrt(0.5)))))
    inner = np.float32(math.sqrt(2 / math.pi)) * (x + np.float32(0.044715) * x * x * x)
    return np.float32(0.5) * x * (np.float32(1) + np.float32(math.tanh(inner)))


@njit(**OPTIONS)
def _round_row(x_C, bytes_C):
    """Write a row as bytes. Return the scale of the row, its largest absolute value divided by 127.

    The row is about (byte - OFFSET) x scale. Up to three more bytes, to a multiple of 4, count as 0.
    """
    count = len(x_C)
    # Without their sign bits, floats sort as integers, with nan last. A maximum of integers is vectorised.
    highest = np.int32(1)  # not 0, which would be divided by
    for c in range(count):
        highest = max(highest, np.int32(bits_of(x_C[c]) & 0x7FFFFFFF))
    top = float_of(highest)
    # Without the limit, the inverse of a tiny row is infinite. With it, such a row becomes zeros.
    inverse = min(LEVELS / top, np.float32(1e36))
    for c in range(count):
        bytes_C[c] = np.int32(np.floor(x_C[c] * inverse + np.float32(0.5))) + np.int32(OFFSET)
    for c in range(count, count + -count % 4):
        bytes_C[c] = OFFSET
    return top / LEVELS


@njit(**OPTIONS)
def _finish(sums_O, bias_O, lowest, out_O):
    """Write sums with biases to the columns `out_O`, at least `lowest`. nan stays nan."""
    for o in range(len(out_O)):
        y = sums_O[o] + bias_O[o]
        out_O[o] = lowest if y < lowest else y


@njit(**OPTIONS)
def _finish_whole(whole_O, shift_O, scale_O, scale_of_row, bias_O, lowest, out_O):
    """Do as `_finish` for sums of integers. `shift_O` is the share of OFFSET in them."""
    for o in range(len(out_O)):
        y = np.float32(whole_O[o] - shift_O[o]) * (scale_O[o] * scale_of_row) + bias_O[o]
        out_O[o] = lowest if y < lowest else y


@njit(**OPTIONS)
def _activate(rows, x_RO, activation):
    for row in range(rows):
        x_O = x_RO[row]
        for o in range(len(x_O)):
            x_O[o] = _activated(x_O[o], activation)


@njit(**OPTIONS)
def multiply(team, phase, rows, weights, number, x_RC, out_RC, activation, work):
    """Write the product of rows with matrix `number`, plus bias, through an activation, to `out_RC`.

    Rows may have more columns than the matrix has inputs or outputs.
    """
    matrix = weights.matrices[number]
    inputs, outputs, rounds = matrix[INPUTS], matrix[OUTPUTS], matrix[SCALE] >= 0
    if rounds:
        row = take(team, phase, rows)
        while row >= 0:
            work.scales_R[row] = _round_row(x_RC[row, :inputs], work.bytes_RC[row])
            row = next_unit(team, phase, rows)
        phase += 1
    units, padded = (outputs + BLOCK - 1) // BLOCK, inputs + -inputs % 4
    sums, whole = np.empty((rows, BLOCK), np.float32), np.empty((rows, BLOCK), np.int32)
    lowest, shift_O = np.float32(0 if activation == RELU else -np.inf), np.empty(BLOCK, np.int32)
    unit = take(team, phase, units)
    while unit >= 0:
        first, count = unit * BLOCK, min(outputs - unit * BLOCK, BLOCK)
        # Slices, because an index that may be negative keeps a loop from becoming vector instructions.
        bias = matrix[BIAS] + first
        bias_O = weights.floats[bias : bias + count]
        if rounds:
            whole[:] = 0
            begin, x, stride = (
                matrix[ADDRESS] + first * padded,
                work.bytes_RC.ctypes.data,
                work.bytes_RC.shape[1],
            )
            add_bytes(rows, begin, x, stride, padded, whole.ctypes.data)
            scale = matrix[SCALE] + first
            scale_O = weights.floats[scale : scale + count]
            for o in range(count):
                shift_O[o] = np.int32(OFFSET) * weights.sums[bias + o]
            for row in range(rows):
                out_O, scale_of_row = out_RC[row, first : first + count], work.scales_R[row]
                _finish_whole(whole[row], shift_O, scale_O, scale_of_row, bias_O, lowest, out_O)
        else:
            sums[:] = 0
            begin, x, stride = matrix[ADDRESS] + 4 * first * inputs, x_RC.ctypes.data, 4 * x_RC.shape[1]
            add_floats(rows, begin, x, stride, inputs, sums.ctypes.data)
            for row in range(rows):
                _finish(sums[row], bias_O, lowest, out_RC[row, first : first + count])
        if activation != RELU and activation != NONE:
            _activate(rows, out_RC[:, first : first + count], activation)
        unit = next_unit(team, phase, units)
    return phase + 1


@njit(**OPTIONS)
def norm_row(x_D, out_D, weights, number):
    """Write norm `number` of a row to `out_D`."""
    width, mean = len(x_D), np.float32(0)
    if not weights.rms:
        for d in range(width):
            mean += x_D[d]
        mean /= np.float32(width)
    squares = np.float32(0)
    for d in range(width):
        squares += (x_D[d] - mean) * (x_D[d] - mean)
    scale = np.float32(1) / np.float32(math.sqrt(squares / np.float32(width) + weights.epsilon))
    weight_D, bias_D = weights.norms[number, 0], weights.norms[number, 1]
    for d in range(width):
        out_D[d] = (x_D[d] - mean) * scale * weight_D[d] + bias_D[d]


@njit(**OPTIONS)
def add_up(team, phase, rows, weights, norm, post, work):
    """Add the output of a sub-layer to the values between layers. Write the norm of the sum as input of the
    next sub-layer. If `post`, the norm is also the new value."""
    row = take(team, phase, rows)
    while row >= 0:
        x_D, y_D, input_D = work.buffers[X][row], work.buffers[Y][row], work.buffers[INPUT][row]
        for d in range(len(x_D)):
            x_D[d] += y_D[d]
        norm_row(x_D, input_D, weights, norm)
        if post:
            for d in range(len(x_D)):
                x_D[d] = input_D[d]
        row = next_unit(team, phase, rows)
    return phase + 1


@njit(**OPTIONS)
def gate(team, phase, rows, inner, activation, x_RC):
    """Multiply the activation of the first `inner` columns by the next `inner` columns."""
    row = take(team, phase, rows)
    while row >= 0:
        gate_C, value_C = x_RC[row, :inner], x_RC[row, inner : 2 * inner]
        for c in range(inner):
            gate_C[c] = _activated(gate_C[c], activation) * value_C[c]
        row = next_unit(team, phase, rows)
    return phase + 1


@njit(**OPTIONS)
def turn(team, phase, rows, heads, width, waves_PK, positions_R, x_RC):
    """Apply rotary positions to queries and keys, as `projections.turned` does."""
    row, half = take(team, phase, rows), width // 2
    while row >= 0:
        waves_K = waves_PK[positions_R[row]]
        for begin in range(0, 2 * heads * width, width):
            a_I, b_I = x_RC[row, begin : begin + half], x_RC[row, begin + half : begin + width]
            for i in range(half):
                a, b, sine, cosine = a_I[i], b_I[i], waves_K[2 * i], waves_K[2 * i + 1]
                a_I[i], b_I[i] = a * cosine - b * sine, b * cosine + a * sine
        row = next_unit(team, phase, rows)
    return phase + 1


@njit(**OPTIONS)
def attend(query_K, memory_NC, keys, values, base, nodes, bias, scores, mixed_V):
    """Write the attention of one head of a row to `mixed_V`.

    Node i is row `base` + `nodes[i]` of `memory_NC`. The keys of the head begin at column `keys`, and the
    values at column `values`. `bias` has a number for each node, or is empty. `scores` is memory for as many.
    """
    width, value_width, count = len(query_K), len(mixed_V), len(nodes)
    scale, top = np.float32(1.0 / math.sqrt(width)), np.float32(-np.inf)
    for i in range(count):
        key_K, score = memory_NC[base + nodes[i], keys : keys + width], np.float32(0)
        for k in range(width):
            score += query_K[k] * key_K[k]
        score *= scale
        if len(bias):
            score += bias[i]
        scores[i] = score
        top = max(top, score)
    total = np.float32(0)
    for i in range(count):
        scores[i] = exp(scores[i] - top)
        total += scores[i]
    for v in range(value_width):
        mixed_V[v] = 0
    for i in range(count):
        value_V, weight = memory_NC[base + nodes[i], values : values + value_width], scores[i] / total
        for v in range(value_width):
            mixed_V[v] += weight * value_V[v]


@njit(**OPTIONS)
def copy(values, copies):
    """Copy a row. Assigning a slice takes seconds to compile."""
    for i in range(len(copies)):
        copies[i] = values[i]


@njit(**OPTIONS)
def ssru_row(forget_D, value_D, old_D, new_D, y_D):
    """Write the new state of an SSRU, a gated mean of `old_D` and of `value_D`, and its ReLU."""
    for d in range(len(new_D)):
        e = exp(-abs(forget_D[d]))  # `exp` knows no positive numbers
        forget = (np.float32(1) if forget_D[d] >= 0 else e) / (np.float32(1) + e)
        new_D[d] = forget * old_D[d] + (np.float32(1) - forget) * value_D[d]
        y_D[d] = max(new_D[d], np.float32(0))
