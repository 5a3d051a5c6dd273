"""The operations of a Transformer's layers for a team of threads, compiled for the CPU by Numba.

A function with `team` and `phase` is one phase of the work, or two (`team.py`). All threads call it with the
same arguments, and it returns the number of the next phase. The reference is `nmt_cli/model`.

Axes: R rows, each a token. D model width, C columns, I inputs, O outputs, K and V channels of keys and values
of a head. N nodes: a node is a cached token, a row of an array of keys and values.
"""

import math
from collections import namedtuple

import numpy as np
from numba import boolean, float32, int8, int32, int64, types, uint8

from nmt_cli.engine.kernels.products import BLOCK, OFFSET, add_bytes, add_floats, dot_bytes
from nmt_cli.engine.kernels.team import next_unit, take
from nmt_cli.runtime.kernels.compiled import OPTIONS, bits_of, exp, float_of, njit

RELU, GELU, GELU_TANH, SWISH, NONE = (np.int64(number) for number in range(5))
"""Activations. `packing.ACTIVATIONS` has them in the same order."""

Weights = namedtuple("Weights", "matrices floats sums norms epsilon rms rows_VI bytes_VI")
"""The weights of a model. A row of `matrices` describes a matrix: the address of the packed weights, inputs,
outputs, and the indices in `floats` of its first bias and of its first scale, -1 for fp32. `sums` has, at the
index of each bias, the sum of the 8-bit weights of the output. `norms` has weight and bias of all norms
[norms, 2, D]. `rms` is True for RMSNorm.

A model with a shortlist also has its output matrix by rows, so that a product can read any of them: `rows_VI`
in fp32, or `bytes_VI` in 8 bits, with zeros up to a multiple of 64 inputs. Otherwise both are empty.
"""

ADDRESS, INPUTS, OUTPUTS, BIAS, SCALE = (np.int64(number) for number in range(5))
"""Columns of `Weights.matrices`."""

WEIGHTS_TYPE = types.NamedTuple(
    (
        int64[:, ::1],
        float32[::1],
        int32[::1],
        float32[:, :, ::1],
        float32,
        boolean,
        float32[:, ::1],
        int8[:, ::1],
    ),
    Weights,
)

Work = namedtuple(
    "Work",
    "buffers bytes_RC scales_R tokens_R positions_R sentences_R slots_R nodes_R lengths_R steps_RW likely_RW",
)
"""Memory of all rows that the threads share: `buffers` are arrays [R, C], see below. `bytes_RC` and
`scales_R` are the rounded inputs of a product with 8-bit weights.

A row has a token (-1 for none), position, sentence, slot and new node. In the encoder, it has the length of
its sentence instead of slot and node. `steps_RW` and `likely_RW` are the log-probabilities of the likeliest
next tokens, and these tokens."""

X, INPUT, WIDE, MIXED, Y, LOGITS = (np.int64(number) for number in range(6))
"""Indices of buffers: the values between layers, the input of the next sub-layer, projections, the result of
attention, the output of a sub-layer, and the logits of the vocabulary."""

WORK_TYPE = types.NamedTuple(
    (
        types.UniTuple(float32[:, ::1], 6),
        uint8[:, ::1],
        float32[::1],
        *(int64[::1],) * 6,
        float32[:, ::1],
        int64[:, ::1],
    ),
    Work,
)

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
def _finish_whole(whole_O, scale_O, scale_of_row, bias_O, lowest, out_O):
    """Do as `_finish` for sums of integers, which have the scale of the row and those of the outputs."""
    for o in range(len(out_O)):
        y = np.float32(whole_O[o]) * (scale_O[o] * scale_of_row) + bias_O[o]
        out_O[o] = lowest if y < lowest else y


@njit(**OPTIONS)
def _activate(rows, x_RO, activation):
    for row in range(rows):
        x_O = x_RO[row]
        for o in range(len(x_O)):
            x_O[o] = _activated(x_O[o], activation)


@njit(**OPTIONS)
def multiply(team, phase, rows, operation, weights, work):
    """Carry out the operation MULTIPLY: write the product with a matrix, plus bias, through an activation.

    Rows of the buffers may have more columns than the matrix has inputs or outputs.
    """
    matrix, activation = weights.matrices[operation[1]], operation[4]
    x_RC, out_RC = work.buffers[operation[2]], work.buffers[operation[3]]
    inputs, outputs, rounds = matrix[INPUTS], matrix[OUTPUTS], matrix[SCALE] >= 0
    if rounds:
        row = take(team, phase, rows)
        while row >= 0:
            work.scales_R[row] = _round_row(x_RC[row, :inputs], work.bytes_RC[row])
            row = next_unit(team, phase, rows)
        phase += 1
    units, padded = (outputs + BLOCK - 1) // BLOCK, inputs + -inputs % 4
    sums, whole = np.empty((rows, BLOCK), np.float32), np.empty((rows, BLOCK), np.int32)
    lowest = np.float32(0 if activation == RELU else -np.inf)
    unit = take(team, phase, units)
    while unit >= 0:
        first, count = unit * BLOCK, min(outputs - unit * BLOCK, BLOCK)
        # Slices, because an index that may be negative keeps a loop from becoming vector instructions.
        bias = matrix[BIAS] + first
        bias_O = weights.floats[bias : bias + count]
        if rounds:
            sums_O, scale = weights.sums[bias : bias + count], matrix[SCALE] + first
            scale_O = weights.floats[scale : scale + count]
            for row in range(rows):
                for o in range(count):  # without the share that OFFSET will have in the sums
                    whole[row, o] = np.int32(-OFFSET) * sums_O[o]
            x, stride = work.bytes_RC.ctypes.data, work.bytes_RC.shape[1]
            add_bytes(rows, matrix[ADDRESS] + first * padded, x, stride, padded, whole.ctypes.data)
            for row in range(rows):
                out_O, scale_of_row = out_RC[row, first : first + count], work.scales_R[row]
                _finish_whole(whole[row], scale_O, scale_of_row, bias_O, lowest, out_O)
        else:
            sums[:] = 0
            x, stride = x_RC.ctypes.data, 4 * x_RC.shape[1]
            add_floats(rows, matrix[ADDRESS] + 4 * first * inputs, x, stride, inputs, sums.ctypes.data)
            for row in range(rows):
                _finish(sums[row], bias_O, lowest, out_RC[row, first : first + count])
        if activation != RELU and activation != NONE:
            _activate(rows, out_RC[:, first : first + count], activation)
        unit = next_unit(team, phase, units)
    return phase + 1


@njit(**OPTIONS)
def score_listed(row, operation, listed_I, weights, work):
    """Write the logits of the tokens `listed_I` of a row, in their order, to its first columns.

    `operation` is that of the product with the output matrix. The logits are those of `multiply`, up to
    rounding. In 8 bits, whether a processor rounds between a product and a sum decides.
    """
    matrix = weights.matrices[operation[1]]
    x_C, out_C = work.buffers[operation[2]][row], work.buffers[operation[3]][row]
    inputs, bias, scale = matrix[INPUTS], matrix[BIAS], matrix[SCALE]
    if scale < 0:
        x_I = x_C[:inputs]
        for i in range(len(listed_I)):
            weights_I, total = weights.rows_VI[listed_I[i]], np.float32(0)
            for j in range(len(x_I)):
                total += x_I[j] * weights_I[j]
            out_C[i] = total + weights.floats[bias + listed_I[i]]
        return
    scale_of_row = _round_row(x_C[:inputs], work.bytes_RC[row])
    x, stride = work.bytes_RC[row].ctypes.data, weights.bytes_VI.shape[1]
    for i in range(len(listed_I)):
        token = listed_I[i]
        whole = dot_bytes(x, weights.bytes_VI.ctypes.data + token * stride, stride // 64)
        whole -= np.int32(OFFSET) * weights.sums[bias + token]
        scale_of_token = weights.floats[scale + token] * scale_of_row
        out_C[i] = np.float32(whole) * scale_of_token + weights.floats[bias + token]


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
def add_up(team, phase, rows, operation, weights, work):
    """Carry out the operation ADD_UP: add the output of a sub-layer to the values between layers. Write the
    norm of the sum as input of the next sub-layer. With post-norm, it is also the new value."""
    norm, post = operation[1], operation[2]
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
def gate(team, phase, rows, operation, work):
    """Carry out the operation GATE: multiply the activation of the first half of columns by the second."""
    inner, activation, x_RC = operation[1], operation[2], work.buffers[WIDE]
    row = take(team, phase, rows)
    while row >= 0:
        gate_C, value_C = x_RC[row, :inner], x_RC[row, inner : 2 * inner]
        for c in range(inner):
            gate_C[c] = _activated(gate_C[c], activation) * value_C[c]
        row = next_unit(team, phase, rows)
    return phase + 1


@njit(**OPTIONS)
def turn(team, phase, rows, operation, waves_PK, work):
    """Carry out the operation TURN: apply rotary positions to queries and keys, as `projections.turned`."""
    heads, width, x_RC = operation[1], operation[2], work.buffers[WIDE]
    row, half = take(team, phase, rows), width // 2
    while row >= 0:
        waves_K = waves_PK[work.positions_R[row]]
        for begin in range(0, 2 * heads * width, width):
            a_I, b_I = x_RC[row, begin : begin + half], x_RC[row, begin + half : begin + width]
            for i in range(half):
                a, b, sine, cosine = a_I[i], b_I[i], waves_K[2 * i], waves_K[2 * i + 1]
                a_I[i], b_I[i] = a * cosine - b * sine, b * cosine + a * sine
        row = next_unit(team, phase, rows)
    return phase + 1


@njit(**OPTIONS)
def attend(query_K, memory_NC, columns, nodes, scores, mixed_V):
    """Write the attention of one head of a row to `mixed_V`.

    The keys and values of `nodes`, rows of `memory_NC`, begin at the two `columns`. `scores` has the bias of
    each node, and is changed.
    """
    keys, values = columns
    width, value_width, count = len(query_K), len(mixed_V), len(nodes)
    scale, top = np.float32(1.0 / math.sqrt(width)), np.float32(-np.inf)
    for i in range(count):
        key_K, score = memory_NC[nodes[i], keys : keys + width], np.float32(0)
        for k in range(width):
            score += query_K[k] * key_K[k]
        scores[i] += score * scale
        top = max(top, scores[i])
    total = np.float32(0)
    for i in range(count):
        scores[i] = exp(scores[i] - top)
        total += scores[i]
    for v in range(value_width):
        mixed_V[v] = 0
    for i in range(count):
        value_V, weight = memory_NC[nodes[i], values : values + value_width], scores[i] / total
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
