"""All layers of an encoder or decoder for few rows as one compiled function, run by several threads at once.

A step is a sequence of phases: products, attention, norms. A phase consists of units: blocks of outputs,
heads or rows. Each thread takes the next unit, and starts no phase before the previous one is done. So a
thread that starts late, or never, only does less work. `claims` counts the taken and the finished units of
each phase. Weights are in the layout of oneDNN (`torch_private.blocks_of`): blocks of 64 outputs, in which
the weights of one input, or of four inputs in 8 bits, are adjacent. The reference is the plain model.

Axes: R rows, D model width, C columns, I inputs, O outputs, K and V channels of keys and values, L layers, H
heads, N norms, B sentences, M nodes (cached tokens).
"""

from collections import namedtuple

import numpy as np
from numba import boolean, carray, float32, int64, types, uint16, void
from numba.extending import intrinsic

from nmt_cli.attention.compiled import SEEN, attend_head, store_head
from nmt_cli.model.pointwise.compiled import normed_row, rounded_row
from nmt_cli.runtime.kernels.compiled import (
    INPUTS,
    OPTIONS,
    add_byte_products,
    add_products,
    added,
    fetch,
    njit,
)
from nmt_cli.runtime.kernels.torch_private import BYTES_PER_OUTPUT, OUTPUTS_PER_BLOCK, ROWS_ROUNDED_TO

BYTES_AT_ONCE = ROWS_ROUNDED_TO * BYTES_PER_OUTPUT
"""Inputs that `add_byte_products` reads at once. Inputs are padded to a multiple."""

assert (OUTPUTS_PER_BLOCK, ROWS_ROUNDED_TO, BYTES_PER_OUTPUT) == (64, 16, 4), (
    "add_products and add_byte_products are made for these"
)

ZERO, NO, YES = np.int64(0), np.bool_(False), np.bool_(True)
"""Typed constants. Plain literals would make Numba compile functions again."""


Tokens = namedtuple("Tokens", "ids_R positions_R vectors_VD positions_PD scale")
"""R tokens and their embeddings: `vectors_VD` times `scale`, plus `positions_PD`. A negative id has zeros."""

Weights = namedtuple("Weights", "matrices_LM biases_LC scales_LC norms_N2D levels epsilon post")
"""All weights of an encoder or decoder. `matrices_LM` has the addresses of the matrices of each layer.

`biases_LC` has their biases, concatenated. `scales_LC` has the scales of the outputs of 8-bit weights, and is
empty for float weights. `norms_N2D` has weight and bias of the layer norms in order. The first one precedes
the first sub-layer. `levels` is the maximum of rounded inputs for 8-bit weights, else 0. `post` is True for
post-norm.
"""

Cache = namedtuple(
    "Cache",
    "addresses_L4 like new_nodes_RH sentences heads own_nodes source_nodes key_width value_width",
)
"""The cached keys and values. `addresses_L4`: own keys, own values, source keys, source values by layer.

`like` is an empty array with numbers of the same type. `new_nodes_RH` are the indices, among all sentences,
heads and nodes, of the nodes that get the new keys and values. `own_nodes` and `source_nodes` count the nodes
of a sentence.
"""

Seen = namedtuple("Seen", "sentences_R nodes_RM counts_R")
"""The nodes that each row attends to. `attend_head` explains the fields."""

Buffers = namedtuple("Buffers", "x_RD input_RD wide_RC mixed_RC y_RD")
"""Memory that all threads of a step share. `input_RD` has the input of the next sub-layer, or the result."""

INPUT = types.NamedTuple((int64[::1], int64[::1], float32[:, ::1], float32[:, ::1], float32), Tokens)
WEIGHTS = types.NamedTuple(
    (int64[:, ::1], float32[:, ::1], float32[:, ::1], float32[:, :, ::1], int64, float32, boolean), Weights
)
BUFFERS = types.NamedUniTuple(float32[:, ::1], 5, Buffers)
SEEN_TYPE = types.NamedTuple(SEEN, Seen)

AHEAD, LINE = 2, 64
"""Distance of prefetched weights, in reads, and the bytes of a cache line."""


@intrinsic
def _at(context, address, like):
    """Return a pointer to the memory at `address`, whose elements have the type of the array `like`."""
    kind = like.dtype

    def made(context, builder, signature, arguments):
        return builder.inttoptr(arguments[0], context.get_value_type(kind).as_pointer())

    return types.CPointer(kind)(int64, like), made


@njit(**OPTIONS)
def _read_ahead(address):
    for line in range(INPUTS * OUTPUTS_PER_BLOCK * 4 // LINE):
        fetch(address + line * LINE)


@njit(**OPTIONS)
def _rows_of(inputs):
    """Return the rows of a block of float weights: `inputs`, rounded up to a multiple of 16."""
    return inputs + -inputs % ROWS_ROUNDED_TO


@njit(**OPTIONS)
def _sum_floats(block, address, x_RC, inputs, sums_RO):
    """Add the products of a block's weights and the first `inputs` columns of each row to `sums_RO`.

    `address` is where the whole matrix begins. `block` is the number of a block of 64 outputs.
    """
    rows = len(x_RC)
    begin = address + block * _rows_of(inputs) * OUTPUTS_PER_BLOCK * BYTES_PER_OUTPUT
    first = 0
    while first + INPUTS <= inputs:
        here = begin + first * OUTPUTS_PER_BLOCK * BYTES_PER_OUTPUT
        _read_ahead(here + AHEAD * INPUTS * OUTPUTS_PER_BLOCK * BYTES_PER_OUTPUT)
        add_products(sums_RO, here, x_RC, first)
        first += INPUTS
    weights = carray(_at(begin, sums_RO), (inputs, OUTPUTS_PER_BLOCK))
    while first < inputs:
        for row in range(rows):
            for o in range(OUTPUTS_PER_BLOCK):
                sums_RO[row, o] += weights[first, o] * x_RC[row, first]
        first += 1


@njit(**OPTIONS)
def _sum_bytes(block, address, whole_RI, zero, sums_RO, negated_sums):
    """Write the products of a block of 8-bit weights and of the integers `whole_RI` to `sums_RO`.

    The integers include an added `zero`, whose share is subtracted. `address` is where the whole matrix
    begins. `negated_sums` is the address of the sum of weights of each output, times -1.
    """
    rows, inputs = whole_RI.shape
    sums_O = carray(
        _at(negated_sums + block * OUTPUTS_PER_BLOCK * BYTES_PER_OUTPUT, sums_RO), (OUTPUTS_PER_BLOCK,)
    )
    for row in range(rows):
        for o in range(OUTPUTS_PER_BLOCK):  # a loop, because an array operation would allocate memory
            sums_RO[row, o] = sums_O[o] * zero
    here = address + block * inputs * OUTPUTS_PER_BLOCK
    for first in range(0, inputs, BYTES_AT_ONCE):
        add_byte_products(sums_RO, here + first * OUTPUTS_PER_BLOCK, whole_RI, first)


@njit(**OPTIONS | {"fastmath": {"contract"}})  # in the order of additions of larger batches
def _write_block(block, sums_RO, out_RC, bias_O, relu, scale_O, scales_R):
    """Write the 64 columns of sums of block number `block` to `out_RC`, plus the bias.

    First multiply the sums by the scales of output and row, if `scale_O` is not empty. `bias_O` and `scale_O`
    have all outputs. Leave out columns after the last output. Finally apply a ReLU if `relu`.
    """
    begin = block * OUTPUTS_PER_BLOCK
    here = min(OUTPUTS_PER_BLOCK, len(bias_O) - begin)
    for row in range(len(out_RC)):
        for o in range(here):
            y = np.float32(sums_RO[row, o])
            if len(scale_O):
                y = y * scale_O[begin + o] * scales_R[row]
            y += bias_O[begin + o]
            out_RC[row, begin + o] = max(y, np.float32(0)) if relu else y


@njit(**OPTIONS)
def _added(row, x_RD, y_RD, input_RD, norm_2D, epsilon, post):
    """Add row `row` of y to x. Write the layer norm of the sum to `input_RD` and, if `post`, to `x_RD`."""
    x_D, input_D = x_RD[row], input_RD[row]
    for d in range(len(x_D)):
        x_D[d] += y_RD[row, d]
    normed_row(x_D, input_D, norm_2D[0], norm_2D[1], epsilon)
    if post:
        for d in range(len(x_D)):
            x_D[d] = input_D[d]


@njit(**OPTIONS)
def _first_unit(claims, phase, units):
    """Take and return a free unit of a phase. If there is none, wait until all are finished and return -1."""
    unit = added(claims[0], phase, 1)
    if unit < units:
        return unit
    while added(claims[1], phase, 0) < units:
        pass
    return -1


@njit(**OPTIONS)
def _next_unit(claims, phase, units):
    """Count one more unit of the phase as finished in `claims`. Then return the result of `_first_unit`."""
    added(claims[1], phase, 1)
    return _first_unit(claims, phase, units)


@njit(**OPTIONS)
def _buffers(rows, widest):
    """Return a thread's buffers for products: float sums, integer sums, rounded inputs, scales of rows."""
    sums, whole_sums = (
        np.empty((rows, OUTPUTS_PER_BLOCK), np.float32),
        np.empty((rows, OUTPUTS_PER_BLOCK), np.int32),
    )
    whole = np.empty(rows * (widest + -widest % BYTES_AT_ONCE), np.uint8)
    return sums, whole_sums, whole, np.empty(rows, np.float32)


@njit(**OPTIONS)
def _multiply(claims, phase, address, x_RC, inputs, out_RC, outputs, begin, relu, rest):
    """Compute this thread's units of a product: the first `inputs` columns of x times a matrix.

    Write the product with biases, and a ReLU if `relu`, to the first `outputs` columns of `out_RC`. The
    matrix is at `address`. Its first bias and scale have the index `begin`. `rest` is biases, scales, levels
    of rounded inputs, and buffers. Slices or literals as arguments would compile this function again.
    """
    bias_C, scale_C, levels, buffers = rest
    end, units = begin + outputs, (outputs + OUTPUTS_PER_BLOCK - 1) // OUTPUTS_PER_BLOCK
    ending = bias_C[begin:end], relu, scale_C[begin:end]
    block = _first_unit(claims, phase, units)
    if len(scale_C):
        _multiply_bytes(claims, phase, block, units, address, x_RC, inputs, out_RC, ending, levels, buffers)
        return
    sums = buffers[0]
    while block >= 0:
        sums[:] = 0
        _sum_floats(block, address, x_RC, inputs, sums)
        _write_block(block, sums, out_RC, *ending, sums[0])
        block = _next_unit(claims, phase, units)


@njit(**OPTIONS)
def _multiply_bytes(claims, phase, block, units, address, x_RC, inputs, out_RC, ending, levels, buffers):
    """Compute this thread's units of `_multiply` with 8-bit weights.

    `block` is the first of `units` units that this thread computes, or -1 for none. `ending` is the biases,
    whether to apply a ReLU, and the scales of the outputs.
    """
    rows, zero = len(x_RC), levels + 1
    wide = inputs + -inputs % BYTES_AT_ONCE
    _, sums, whole, scales = buffers
    whole_RI = whole[: rows * wide].reshape(rows, wide)
    if block >= 0:  # every thread rounds all inputs, which is faster than waiting for another thread
        whole_RI[:, inputs:] = 0  # the padded weights are 0 too
        for row in range(rows):
            scales[row] = rounded_row(x_RC[row, :inputs], levels, zero, whole_RI[row, :inputs])
    while block >= 0:
        _sum_bytes(block, address, whole_RI, zero, sums, address + units * OUTPUTS_PER_BLOCK * wide)
        _write_block(block, sums, out_RC, *ending, scales)
        block = _next_unit(claims, phase, units)


@njit(**OPTIONS)
def _attend(claims, phase, query_RC, keys_BHMK, values_BHMV, mixed_RC, nodes_RH, work, seen):
    """Write the attention of the heads that this thread takes to `mixed_RC`.

    First store new keys and values from `query_RC` at `nodes_RH`, which is empty in attention to the source.
    `seen` has the nodes that each row attends to. `work` is a buffer for `attend_head`.
    """
    rows, heads = len(query_RC), keys_BHMK.shape[1]
    among = seen.sentences_R, seen.nodes_RM, seen.counts_R
    head = _first_unit(claims, phase, heads)
    while head >= 0:
        store_head(head, query_RC, nodes_RH, keys_BHMK, values_BHMV)
        attend_head(head, ZERO, rows, query_RC, keys_BHMK, values_BHMV, mixed_RC, work, *among)
        head = _next_unit(claims, phase, heads)


@njit(**OPTIONS | {"fastmath": False})  # each product and sum is rounded, as in PyTorch
def _embed(token, position, vectors_VD, positions_PD, scale, x_D):
    """Write a token's vector times `scale`, plus its position, to `x_D`. A negative token has no vector."""
    for d in range(len(x_D)):
        x_D[d] = positions_PD[position, d]
    if token >= 0:
        for d in range(len(x_D)):
            x_D[d] = vectors_VD[token, d] * scale + x_D[d]


@njit(**OPTIONS)
def _begin(claims, tokens, x_RD, input_RD, norm_2D, epsilon, post):
    """Embed this thread's rows of `tokens` in `x_RD`, and write the first sub-layer's inputs to `input_RD`.

    Threads take rows by `claims`. An input is the embedding if `post`, else its norm by `norm_2D`.
    """
    row = _first_unit(claims, ZERO, len(x_RD))
    while row >= 0:
        token, position = tokens.ids_R[row], tokens.positions_R[row]
        _embed(token, position, tokens.vectors_VD, tokens.positions_PD, tokens.scale, x_RD[row])
        if post:
            for d in range(x_RD.shape[1]):
                input_RD[row, d] = x_RD[row, d]
        else:
            normed_row(x_RD[row], input_RD[row], norm_2D[0], norm_2D[1], epsilon)
        row = _next_unit(claims, ZERO, len(x_RD))


@njit(**OPTIONS)
def _add_up(claims, phase, x_RD, y_RD, input_RD, norm_2D, epsilon, post):
    """Add a sub-layer's output `y_RD` to `x_RD`, in this thread's rows, with a layer norm as in `_added`."""
    row = _first_unit(claims, phase, len(x_RD))
    while row >= 0:
        _added(row, x_RD, y_RD, input_RD, norm_2D, epsilon, post)
        row = _next_unit(claims, phase, len(x_RD))


def _step_signature(number):
    cache = types.NamedTuple((int64[:, ::1], number[::1], int64[:, ::1], *(int64,) * 6), Cache)
    return void(int64[:, ::1], INPUT, WEIGHTS, cache, SEEN_TYPE, SEEN_TYPE, BUFFERS)


@njit([_step_signature(float32), _step_signature(uint16)], **OPTIONS)
def step(claims, tokens, weights, cache, own, source, buffers):
    """Compute all layers, together with threads that make the same call. Return when all are computed.

    Write the result to `buffers.input_RD`, and keys and values to the cache. `claims` starts as zeros. Rows
    attend to nodes `own` and `source`. Layers with four matrices belong to an encoder and ignore `source`.
    """
    x_RD, input_RD, wide_RC, mixed_RC, y_RD = buffers
    matrices_LM, norms_N2D, epsilon, post = (
        weights.matrices_LM,
        weights.norms_N2D,
        weights.epsilon,
        weights.post,
    )
    many, heads, width, value_width = cache.sentences, cache.heads, cache.key_width, cache.value_width
    rows, channels = x_RD.shape
    keys, values, crosses = heads * width, heads * value_width, matrices_LM.shape[1] > 4
    projected = 2 * keys + values
    before = projected + channels + crosses * (keys + channels)
    inner = weights.biases_LC.shape[1] - before - channels
    # Allocated before a unit is taken: if it fails, no other thread waits for this one.
    sums = _buffers(rows, max(channels, values, inner))
    work = np.empty(width + value_width + max(own.nodes_RM.shape[1], source.nodes_RM.shape[1]), np.float32)
    _begin(claims, tokens, x_RD, input_RD, norms_N2D[0], epsilon, post)
    phase, norm = ZERO + 1, ZERO + 1
    for layer in range(len(matrices_LM)):
        matrices, caches = matrices_LM[layer], cache.addresses_L4[layer]
        rest = weights.biases_LC[layer], weights.scales_LC[layer], weights.levels, sums
        own_keys = carray(_at(caches[0], cache.like), (many, heads, cache.own_nodes, width))
        own_values = carray(_at(caches[1], cache.like), (many, heads, cache.own_nodes, value_width))
        _multiply(claims, phase, matrices[0], input_RD, channels, wide_RC, projected, ZERO, NO, rest)
        new, begin = cache.new_nodes_RH, projected
        _attend(claims, phase + 1, wide_RC, own_keys, own_values, mixed_RC, new, work, own)
        _multiply(claims, phase + 2, matrices[1], mixed_RC, values, y_RD, channels, begin, NO, rest)
        _add_up(claims, phase + 3, x_RD, y_RD, input_RD, norms_N2D[norm], epsilon, post)
        phase, norm = phase + 4, norm + 1
        if crosses:
            source_keys = carray(_at(caches[2], cache.like), (many, heads, cache.source_nodes, width))
            source_values = carray(_at(caches[3], cache.like), (many, heads, cache.source_nodes, value_width))
            begin += channels
            _multiply(claims, phase, matrices[2], input_RD, channels, wide_RC, keys, begin, NO, rest)
            new, begin = cache.new_nodes_RH[:0], begin + keys
            _attend(claims, phase + 1, wide_RC, source_keys, source_values, mixed_RC, new, work, source)
            _multiply(claims, phase + 2, matrices[3], mixed_RC, values, y_RD, channels, begin, NO, rest)
            _add_up(claims, phase + 3, x_RD, y_RD, input_RD, norms_N2D[norm], epsilon, post)
            phase, norm = phase + 4, norm + 1
        _multiply(claims, phase, matrices[-2], input_RD, channels, wide_RC, inner, before, YES, rest)
        _multiply(claims, phase + 1, matrices[-1], wide_RC, inner, y_RD, channels, before + inner, NO, rest)
        _add_up(claims, phase + 2, x_RD, y_RD, input_RD, norms_N2D[norm], epsilon, post)
        phase, norm = phase + 3, norm + 1


@njit(
    void(int64[:, ::1], int64, float32[:, ::1], float32[:, ::1], float32[::1], float32[::1], int64), **OPTIONS
)
def product(claims, matrix, x_RI, out_RO, bias_O, scale_O, levels):
    """Write `x_RI` times a matrix plus `bias_O` to `out_RO`, together with threads that make the same call.

    `claims` starts as zeros. `matrix` is the address of weights, in 8 bits if `scale_O` is not empty. For
    8-bit weights, round inputs to integers from -`levels` to `levels`. Return when all threads have finished.
    """
    rest = bias_O, scale_O, levels, _buffers(*x_RI.shape)
    inputs, outputs = x_RI.shape[1], out_RO.shape[1]
    _multiply(claims, ZERO, matrix, x_RI, inputs, out_RO, outputs, ZERO, NO, rest)
