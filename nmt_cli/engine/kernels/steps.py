"""The function that Python calls: it encodes sentences, or extends their hypotheses by several tokens.

The layers of a model are a program: a table of operations, which `packing.py` writes. `_run` carries out its
rows in order. A team of threads makes each call (`team.py`). All steps of a call run here, so Python costs
time once per call and not once per token.

There is one such function, because each takes seconds to compile.

Axes as in `layers.py` and `beams.py`. L layers, P positions, X distances.
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

__all__ = ["SIZE", "Embedding", "Rules", "State", "Task", "Weights", "Work", "run"]

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

Task = namedtuple("Task", "program norm embedding start steps")
"""What a call does: the program of a stack, the number of its first norm (-1 for post-norm) and its input.
`start` is the input before the first token of a hypothesis, -1 for none. With 0 `steps`, a call encodes."""

TASK_TYPE = types.NamedTuple((int64[:, ::1], int64, EMBEDDING_TYPE, int64, int64), Task)


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
def _begin(team, phase, count, task, weights, work):
    """Embed the tokens, and write the inputs of the first sub-layer: the embeddings, or their norm."""
    row = take(team, phase, count)
    while row >= 0:
        x_D, input_D = work.buffers[X][row], work.buffers[INPUT][row]
        _embed(work.tokens_R[row], work.positions_R[row], task.embedding, x_D)
        if task.norm < 0:
            copy(x_D, input_D)
        else:
            norm_row(x_D, input_D, weights, task.norm)
        row = next_unit(team, phase, count)
    return phase + 1


@njit(**OPTIONS)
def _attend(team, phase, operation, bias_HX, work, state):
    """Carry out an operation of attention. The units are the heads of all rows."""
    kind, layer, heads, width, value_width = operation[:5]
    keys = heads * width  # columns of all keys
    wide_RC, mixed_RC = work.buffers[WIDE], work.buffers[MIXED]
    own_PC = state.own_LPC[layer if kind == ATTEND_PATH else 0]  # an encoder may have more layers
    longest = max(state.paths.shape[2], state.source_BLSC.shape[2])
    every, scores = np.arange(longest).astype(np.int32), np.empty(longest, np.float32)
    units = state.counts[ROWS] * heads
    unit = take(team, phase, units)
    while unit >= 0:
        row, head = unit // heads, unit % heads
        place, position, wide_C = work.sentences_R[row], work.positions_R[row], wide_RC[row]
        first_key, first_value, distance = head * width, keys + head * value_width, np.int64(0)
        if kind == ATTEND_SENTENCE:  # other rows have the keys and values, after their queries
            nodes, memory_NC = every[: work.lengths_R[row]], wide_RC[row - position :]
            first_key, first_value = keys + first_key, keys + first_value
            distance = bias_HX.shape[1] // 2 - position
        elif kind == ATTEND_PATH:
            own_C = own_PC[work.nodes_R[row]]
            copy(wide_C[keys + first_key :], own_C[first_key : first_key + width])
            copy(wide_C[keys + first_value :], own_C[first_value : first_value + value_width])
            nodes, memory_NC = state.paths[place, work.slots_R[row], : position + 1], own_PC
            distance = bias_HX.shape[1] - position - 1
        else:
            nodes, memory_NC = every[: state.lengths_B[place]], state.source_BLSC[place, layer]
        if len(bias_HX) and kind != ATTEND_SOURCE:
            copy(bias_HX[head, distance:], scores[: len(nodes)])
        else:
            for i in range(len(nodes)):  # assigning a slice takes seconds to compile
                scores[i] = 0
        query_K = wide_C[head * width : (head + 1) * width]
        mixed_V = mixed_RC[row, head * value_width : (head + 1) * value_width]
        attend(query_K, memory_NC, (first_key, first_value), nodes, scores, mixed_V)
        unit = next_unit(team, phase, units)
    return phase + 1


@njit(**OPTIONS)
def _advance_states(team, phase, operation, work, state):
    """Carry out the operation SSRU, after the products with both of its matrices."""
    own_PD, count = state.own_LPC[operation[1]], state.counts[ROWS]
    zeros = np.zeros(own_PD.shape[1], np.float32)
    row = take(team, phase, count)
    while row >= 0:
        position = work.positions_R[row]
        path = state.paths[work.sentences_R[row], work.slots_R[row]]
        old_D = own_PD[path[position - 1]] if position else zeros
        new_D = own_PD[work.nodes_R[row]]
        ssru_row(work.buffers[WIDE][row], work.buffers[MIXED][row], old_D, new_D, work.buffers[Y][row])
        row = next_unit(team, phase, count)
    return phase + 1


@njit(**OPTIONS)
def _keep_source(team, phase, operation, work, state):
    """Carry out the operation KEEP_SOURCE."""
    layer, count = operation[1], state.counts[ROWS]
    row = take(team, phase, count)
    while row >= 0:
        kept_C = state.source_BLSC[work.sentences_R[row], layer, work.positions_R[row]]
        copy(work.buffers[WIDE][row], kept_C)
        row = next_unit(team, phase, count)
    return phase + 1


@njit(**OPTIONS)
def _run_program(team, phase, task, weights, work, state):
    """Embed the tokens of all rows, and carry out a program on them. Return the next phase."""
    # A thread that comes late may read the number of a later step. It then finds no unit.
    count = state.counts[ROWS]
    phase = _begin(team, phase, count, task, weights, work)
    for number in range(len(task.program)):
        operation = task.program[number]
        kind = operation[0]
        if kind == MULTIPLY and operation[3] == LOGITS and state.shortlists.shape[1]:
            continue  # `rank_tokens` multiplies by the rows of a shortlist
        if kind == MULTIPLY:
            phase = multiply(team, phase, count, operation, weights, work)
        elif kind == ADD_UP:
            phase = add_up(team, phase, count, operation, weights, work)
        elif kind == GATE:
            phase = gate(team, phase, count, operation, work)
        elif kind == TURN:
            phase = turn(team, phase, count, operation, task.embedding.waves_PK, work)
        elif kind == SSRU:
            phase = _advance_states(team, phase, operation, work, state)
        elif kind == KEEP_SOURCE:
            phase = _keep_source(team, phase, operation, work, state)
        else:
            phase = _attend(team, phase, operation, task.embedding.bias_HX, work, state)
    return phase


@njit(void(int64[::1], TASK_TYPE, WEIGHTS_TYPE, WORK_TYPE, RULES_TYPE, STATE_TYPE), **OPTIONS)
def run(team, task, weights, work, rules, state):
    """Encode whole sentences, whose tokens are rows, and keep what the decoder needs. Or extend the
    hypotheses of live sentences by up to `task.steps` tokens, until a sentence is done.

    The arrays have room for all steps.
    """
    phase, encodes = 0, task.steps == 0
    for _ in range(max(task.steps, 1)):
        if not encodes:
            if take(team, phase, 1) >= 0:  # by one thread, as nodes are common property
                list_rows(work, state, task.start)
                next_unit(team, phase, 1)
            phase += 1
        phase = _run_program(team, phase, task, weights, work, state)
        if encodes:
            return
        phase = rank_tokens(team, phase, task.program[-1], weights, work, rules, state)
        if take(team, phase, 1) >= 0:
            choose(work, rules, state)
            next_unit(team, phase, 1)
        phase += 1
        if state.counts[FINISHED]:
            return
