"""The two functions that Python calls: encode sentences, and extend their hypotheses by several tokens.

The layers of a model are a program: a table of operations, which `packing.py` writes. `_run` carries out its
rows in order. A team of threads makes each call (`team.py`). All steps of a call run here, so Python costs
time once per call and not once per token.

Axes as in `layers.py` and `beams.py`. L layers, B sentences, S source tokens, P nodes or positions, X
distances.
"""

from collections import namedtuple

import numpy as np
from numba import float32, int64, types, void

from nmt_cli.engine.kernels.beams import (
    FINISHED,
    ROWS,
    RULES_TYPE,
    STATE_TYPE,
    Rules,
    State,
    choose,
    list_rows,
    rank_tokens,
)
from nmt_cli.engine.kernels.layers import (
    INPUT,
    LOGITS,
    MIXED,
    WEIGHTS_TYPE,
    WIDE,
    WORK_TYPE,
    Weights,
    Work,
    X,
    Y,
    add_up,
    attend,
    copy,
    gate,
    multiply,
    norm_row,
    ssru_row,
    turn,
)
from nmt_cli.engine.kernels.team import SIZE, next_unit, take
from nmt_cli.runtime.kernels.compiled import OPTIONS, njit

__all__ = ["SIZE", "Embedding", "Memory", "Rows", "Rules", "State", "Weights", "Work", "encode", "extend"]

MULTIPLY, ADD_UP, GATE, TURN, SSRU, KEEP_SOURCE = (np.int64(number) for number in range(6))
"""Operations, in the first column of a program. The next columns are:

- MULTIPLY: matrix, buffer of the inputs, buffer of the outputs, activation.
- ADD_UP: norm, 1 for post-norm.
- GATE: columns of a half, activation.
- TURN: heads, channels of a key.
- SSRU: layer.
- KEEP_SOURCE: layer. Keep the keys and values of source tokens for the decoder.
"""

ATTEND_SENTENCE, ATTEND_PATH, ATTEND_SOURCE = (np.int64(number) for number in range(6, 9))
"""Attention of a row to its own sentence (in the encoder), to its hypothesis, and to its source sentence. The
next columns are: layer, heads, channels of a key, channels of a value."""

Embedding = namedtuple("Embedding", "vectors_VD positions_PD scale waves_PK bias_HX")
"""Token vectors, times `scale`, plus positions. `waves_PK` are rotary positions, and `bias_HX` the biases of
attention by distance, the farthest key before the query first. Arrays that a model does not use are empty."""

EMBEDDING_TYPE = types.NamedTuple(
    (float32[:, ::1], float32[:, ::1], float32, float32[:, ::1], float32[:, ::1]), Embedding
)

Memory = namedtuple("Memory", "own_LPC source_BLSC lengths_B")
"""Keys and values of target tokens by node, and of the first `lengths_B` source tokens of each sentence. With
an SSRU, the node of a token has the state after the token instead."""

MEMORY_TYPE = types.NamedTuple((float32[:, :, ::1], float32[:, :, :, ::1], int64[::1]), Memory)

Rows = namedtuple("Rows", "tokens_R positions_R sentences_R slots_R nodes_R lengths_R steps_RW likely_RW")
"""The rows of a step: their token (-1 for none), position, sentence, slot and new node. In the encoder, a row
has the length of its sentence instead of slot and node. `steps_RW` and `likely_RW` are the log-probabilities
of the likeliest next tokens, and these tokens."""

ROWS_TYPE = types.NamedTuple((*(int64[::1],) * 6, float32[:, ::1], int64[:, ::1]), Rows)


@njit(**OPTIONS | {"fastmath": False})  # each product and sum is rounded, as in PyTorch
def _embed(token, position, embedding, x_D):
    """Write the vector of a token and position. A negative token has no vector."""
    for d in range(len(x_D)):
        x_D[d] = embedding.vectors_VD[token, d] * embedding.scale if token >= 0 else np.float32(0)
    if len(embedding.positions_PD):
        positions_D = embedding.positions_PD[position]
        for d in range(len(x_D)):
            x_D[d] += positions_D[d]


@njit(**OPTIONS)
def _begin(team, phase, count, rows, embedding, weights, norm, work):
    """Embed the tokens, and write the inputs of the first sub-layer: the embeddings, or their norm with the
    number `norm`, if that is not -1."""
    row = take(team, phase, count)
    while row >= 0:
        x_D, input_D = work.buffers[X][row], work.buffers[INPUT][row]
        _embed(rows.tokens_R[row], rows.positions_R[row], embedding, x_D)
        if norm < 0:
            copy(x_D, input_D)
        else:
            norm_row(x_D, input_D, weights, norm)
        row = next_unit(team, phase, count)
    return phase + 1


@njit(**OPTIONS)
def _attend(team, phase, count, operation, rows, bias_HX, work, memory, state):
    """Carry out an operation of attention. The units are the heads of all rows."""
    kind, layer, heads, width, value_width = operation[:5]
    keys = heads * width  # columns of all keys
    wide_RC, mixed_RC = work.buffers[WIDE], work.buffers[MIXED]
    own_PC = memory.own_LPC[layer if kind == ATTEND_PATH else 0]  # an encoder may have more layers
    longest = max(state.paths.shape[2], memory.source_BLSC.shape[2])
    every, scores = np.arange(longest).astype(np.int32), np.empty(longest, np.float32)
    unit = take(team, phase, count * heads)
    while unit >= 0:
        row, head = unit // heads, unit % heads
        place, position, wide_C = rows.sentences_R[row], rows.positions_R[row], wide_RC[row]
        first_key, first_value = head * width, keys + head * value_width
        bias, base = scores[:0], 0
        if kind == ATTEND_SENTENCE:  # other rows have the keys and values, after their queries
            length, base = rows.lengths_R[row], row - position
            nodes, memory_NC = every[:length], wide_RC
            first_key, first_value = keys + first_key, keys + first_value
            if len(bias_HX):
                far = bias_HX.shape[1] // 2 - position
                bias = bias_HX[head, far : far + length]
        elif kind == ATTEND_PATH:
            own_C = own_PC[rows.nodes_R[row]]
            copy(wide_C[keys + first_key :], own_C[first_key : first_key + width])
            copy(wide_C[keys + first_value :], own_C[first_value : first_value + value_width])
            nodes, memory_NC = state.paths[place, rows.slots_R[row], : position + 1], own_PC
            if len(bias_HX):
                bias = bias_HX[head, bias_HX.shape[1] - position - 1 :]
        else:
            nodes, memory_NC = every[: memory.lengths_B[place]], memory.source_BLSC[place, layer]
        query_K = wide_C[head * width : (head + 1) * width]
        mixed_V = mixed_RC[row, head * value_width : (head + 1) * value_width]
        attend(query_K, memory_NC, first_key, first_value, base, nodes, bias, scores, mixed_V)
        unit = next_unit(team, phase, count * heads)
    return phase + 1


@njit(**OPTIONS)
def _advance_states(team, phase, count, layer, rows, work, memory, state):
    """Carry out the operation SSRU, after the products with both of its matrices."""
    own_PD = memory.own_LPC[layer]
    zeros = np.zeros(own_PD.shape[1], np.float32)
    row = take(team, phase, count)
    while row >= 0:
        position = rows.positions_R[row]
        path = state.paths[rows.sentences_R[row], rows.slots_R[row]]
        old_D = own_PD[path[position - 1]] if position else zeros
        new_D = own_PD[rows.nodes_R[row]]
        ssru_row(work.buffers[WIDE][row], work.buffers[MIXED][row], old_D, new_D, work.buffers[Y][row])
        row = next_unit(team, phase, count)
    return phase + 1


@njit(**OPTIONS)
def _keep_source(team, phase, count, layer, rows, work, memory):
    """Carry out the operation KEEP_SOURCE."""
    row = take(team, phase, count)
    while row >= 0:
        kept_C = memory.source_BLSC[rows.sentences_R[row], layer, rows.positions_R[row]]
        copy(work.buffers[WIDE][row], kept_C)
        row = next_unit(team, phase, count)
    return phase + 1


@njit(**OPTIONS)
def _run(team, phase, program, count, rows, weights, embedding, work, memory, state):
    """Carry out a program on the first `count` rows. Return the next phase."""
    for number in range(len(program)):
        operation = program[number]
        kind, first, second, third, fourth = operation[:5]
        if kind == MULTIPLY:
            x, out = work.buffers[second], work.buffers[third]
            phase = multiply(team, phase, count, weights, first, x, out, fourth, work)
        elif kind == ADD_UP:
            phase = add_up(team, phase, count, weights, first, second, work)
        elif kind == GATE:
            phase = gate(team, phase, count, first, second, work.buffers[WIDE])
        elif kind == TURN:
            waves, positions, x = embedding.waves_PK, rows.positions_R, work.buffers[WIDE]
            phase = turn(team, phase, count, first, second, waves, positions, x)
        elif kind == SSRU:
            phase = _advance_states(team, phase, count, first, rows, work, memory, state)
        elif kind == KEEP_SOURCE:
            phase = _keep_source(team, phase, count, first, rows, work, memory)
        else:
            phase = _attend(team, phase, count, operation, rows, embedding.bias_HX, work, memory, state)
    return phase


@njit(
    void(
        *(int64[::1], int64[:, ::1], int64, int64, ROWS_TYPE, WEIGHTS_TYPE),
        *(EMBEDDING_TYPE, WORK_TYPE, MEMORY_TYPE, STATE_TYPE),
    ),
    **OPTIONS,
)
def encode(team, program, norm, count, rows, weights, embedding, work, memory, state):
    """Encode whole sentences, whose tokens are the first `count` rows, and keep what the decoder needs.

    `norm` is the number of the first norm, or -1 for post-norm.
    """
    phase = _begin(team, 0, count, rows, embedding, weights, norm, work)
    _run(team, phase, program, count, rows, weights, embedding, work, memory, state)


@njit(
    void(
        *(int64[::1], int64[:, ::1], int64, int64, int64, ROWS_TYPE, WEIGHTS_TYPE),
        *(EMBEDDING_TYPE, WORK_TYPE, MEMORY_TYPE, RULES_TYPE, STATE_TYPE),
    ),
    **OPTIONS,
)
def extend(team, program, norm, start, steps, rows, weights, embedding, work, memory, rules, state):
    """Extend the hypotheses of live sentences by up to `steps` tokens, until a sentence is done.

    `start` is the input before the first token, or -1 for none. The arrays have room for all steps.
    """
    phase = 0
    for _ in range(steps):
        if take(team, phase, 1) >= 0:  # by one thread, as nodes are common property
            list_rows(state, rows, start)
            next_unit(team, phase, 1)
        phase, count = phase + 1, state.counts[ROWS]
        phase = _begin(team, phase, count, rows, embedding, weights, norm, work)
        phase = _run(team, phase, program, count, rows, weights, embedding, work, memory, state)
        phase = rank_tokens(team, phase, count, work.buffers[LOGITS], rows, rules, state)
        if take(team, phase, 1) >= 0:
            choose(count, rows, rules, state)
            next_unit(team, phase, 1)
        phase += 1
        if state.counts[FINISHED]:
            return
