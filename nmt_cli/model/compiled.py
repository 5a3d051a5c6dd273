"""A decoder's step for few rows as one compiled function, which several threads run side by side.

A step is a row of phases: products, attention, norms. Each is made of units, and whoever is free takes the
next one; nobody begins a phase before the one before it is done. So a thread that comes late, or never, costs
nothing but its help. Weights are read as oneDNN lays them out (`torch_private.blocks_of`): blocks of 64
outputs, in each of which those of one input, or of four in 8 bits, stand side by side.
"""

import numpy as np
from numba import boolean, carray, float32, int64, njit, types, uint16, void
from numba.extending import intrinsic

from nmt_cli.attention.compiled import SEEN, attend_head, keep_head
from nmt_cli.machine.compiled import OPTIONS, add_byte_products, added, fetch
from nmt_cli.machine.torch_private import BLOCK, BYTES, MULTIPLE
from nmt_cli.model.pointwise.compiled import normed_row, rounded_row

INPUTS = 8
"""So many are multiplied at a time: then sums are read and written only once for them."""

BYTES_AT_ONCE = MULTIPLE * BYTES
"""The same where inputs are bytes."""

assert (BLOCK, MULTIPLE, BYTES) == (64, 16, 4), "add_byte_products is made for these"

AHEAD, LINE = 4, 64
"""Where several rows are multiplied by each weight, what comes so many times later is read meanwhile; and the
bytes that a processor reads at a time."""


@intrinsic
def _at(context, address, like):
    """The memory at an address as numbers of the kind that the array `like` has."""
    kind = like.dtype

    def made(context, builder, signature, arguments):
        return builder.inttoptr(arguments[0], context.get_value_type(kind).as_pointer())

    return types.CPointer(kind)(int64, like), made


@njit(**OPTIONS)
def _read_ahead(address):
    for line in range(INPUTS * BLOCK * 4 // LINE):
        fetch(address + line * LINE)


@njit(**OPTIONS)
def _rows_of(inputs):
    """How many rows a block has for so many inputs that are no bytes."""
    return inputs + -inputs % MULTIPLE


@njit(**OPTIONS)
def _sum_floats(block, address, x_RI, sums_RO):
    """What a block's weights make of each row."""
    rows, inputs = x_RI.shape
    begin = address + block * _rows_of(inputs) * BLOCK * BYTES
    weights = carray(_at(begin, sums_RO), (inputs, BLOCK))
    sums = sums_RO.reshape(rows * BLOCK)
    first = 0
    while first + INPUTS <= inputs:
        if rows > 1:  # or else there is too little to do meanwhile
            _read_ahead(begin + (first + AHEAD * INPUTS) * BLOCK * BYTES)
        w = weights[first : first + INPUTS]
        for row in range(rows):
            x, total = x_RI[row, first : first + INPUTS], sums[row * BLOCK : (row + 1) * BLOCK]
            x0, x1, x2, x3, x4, x5, x6, x7 = x[0], x[1], x[2], x[3], x[4], x[5], x[6], x[7]
            for o in range(BLOCK):
                first_half = w[0, o] * x0 + w[1, o] * x1 + w[2, o] * x2 + w[3, o] * x3
                total[o] += first_half + w[4, o] * x4 + w[5, o] * x5 + w[6, o] * x6 + w[7, o] * x7
        first += INPUTS
    while first < inputs:
        for row in range(rows):
            for o in range(BLOCK):
                sums_RO[row, o] += weights[first, o] * x_RI[row, first]
        first += 1


@njit(**OPTIONS)
def _sum_bytes(block, address, whole_RI, zero, sums_RO, behind):
    """The same of weights of 8 bits, and of whole numbers to which `zero` was added.

    Behind the weights, at `behind`, stand the sums of each output's, times -1.
    """
    rows, inputs = whole_RI.shape
    sums_O = carray(_at(behind + block * BLOCK * BYTES, sums_RO), (BLOCK,))
    for row in range(rows):
        for o in range(BLOCK):  # not all at once, which would ask for memory
            sums_RO[row, o] = sums_O[o] * zero
    here = address + block * inputs * BLOCK
    for first in range(0, inputs, BYTES_AT_ONCE):
        for row in range(rows):
            add_byte_products(sums_RO[row], here + first * BLOCK, whole_RI[row], first)


@njit(**OPTIONS | {"fastmath": {"contract"}})  # in this order, as larger batches have it
def _hand_over(block, sums_RO, out_RO, bias_O, bend, scale_O, scales_R):
    """Write what a block's sums stand for: with their scales, if they have any, and a bias; through a ReLU if
    they are to `bend`."""
    begin = block * BLOCK
    here = min(BLOCK, out_RO.shape[1] - begin)
    for row in range(len(out_RO)):
        for o in range(here):
            y = np.float32(sums_RO[row, o])
            if len(scale_O):
                y = y * scale_O[begin + o] * scales_R[row]
            y += bias_O[begin + o]
            out_RO[row, begin + o] = max(y, np.float32(0)) if bend else y


@njit(**OPTIONS)
def _added(row, x_RD, y_RD, input_RD, norm_2D, epsilon, post):
    """A unit of what lies between sub-layers: y is added to x, and the next one's input is the norm of
    that."""
    x_D, input_D = x_RD[row], input_RD[row]
    for d in range(len(x_D)):
        x_D[d] += y_RD[row, d]
    normed_row(x_D, input_D, norm_2D[0], norm_2D[1], epsilon)
    if post:
        x_D[:] = input_D


@njit(**OPTIONS)
def _taken(claims, phase, units):
    """A unit that nobody has taken yet; or -1, once all of them are done."""
    unit = added(claims[0], phase, 1)
    if unit < units:
        return unit
    while added(claims[1], phase, 0) < units:
        pass
    return -1


@njit(**OPTIONS)
def _next(claims, phase, units):
    """The same, by a thread that has done a unit."""
    added(claims[1], phase, 1)
    return _taken(claims, phase, units)


@njit(**OPTIONS)
def _room(rows, widest):
    """Room for a thread to multiply in: for sums, and for inputs that are rounded, with their scales."""
    sums, whole_sums = np.empty((rows, BLOCK), np.float32), np.empty((rows, BLOCK), np.int32)
    whole = np.empty(rows * (widest + -widest % BYTES_AT_ONCE), np.uint8)
    return sums, whole_sums, whole, np.empty(rows, np.float32)


@njit(**OPTIONS)
def _multiply(claims, phase, address, x_RI, out_RO, begin, bend, rest):
    """A phase: x times a matrix, plus a bias.

    `rest` are biases and scales, of which those of the matrix begin at `begin`, the levels of rounded inputs,
    and room. Without scales, weights are no whole numbers.
    """
    bias_C, scale_C, levels, room = rest
    end, units = begin + out_RO.shape[1], (out_RO.shape[1] + BLOCK - 1) // BLOCK
    ending = bias_C[begin:end], bend, scale_C[begin:end]
    block = _taken(claims, phase, units)
    if len(scale_C):
        _multiply_bytes(claims, phase, block, units, address, x_RI, out_RO, ending, levels, room)
        return
    sums = room[0]
    while block >= 0:
        sums[:] = 0
        _sum_floats(block, address, x_RI, sums)
        _hand_over(block, sums, out_RO, *ending, sums[0])
        block = _next(claims, phase, units)


@njit(**OPTIONS)
def _multiply_bytes(claims, phase, block, units, address, x_RI, out_RO, ending, levels, room):
    """`_multiply` with weights of 8 bits, from `block` on."""
    (rows, inputs), zero = x_RI.shape, levels + 1
    wide = inputs + -inputs % BYTES_AT_ONCE
    _, sums, whole, scales = room
    whole_RI = whole[: rows * wide].reshape(rows, wide)
    if block >= 0:  # each thread for itself, in less time than it takes to wait for another
        whole_RI[:, inputs:] = 0  # and so are the weights there
        for row in range(rows):
            scales[row] = rounded_row(x_RI[row], levels, zero, whole_RI[row, :inputs])
    while block >= 0:
        _sum_bytes(block, address, whole_RI, zero, sums, address + units * BLOCK * wide)
        _hand_over(block, sums, out_RO, *ending, scales)
        block = _next(claims, phase, units)


@njit(**OPTIONS)
def _attend(claims, phase, query_RC, keys_BHMK, values_BHMV, mixed_RC, nodes_RH, work, seen):
    """A phase: attention, once the newest keys and values are kept at their nodes, if there are any."""
    heads = keys_BHMK.shape[1]
    head = _taken(claims, phase, heads)
    while head >= 0:
        keep_head(head, query_RC, nodes_RH, keys_BHMK, values_BHMV)
        attend_head(head, 0, len(query_RC), query_RC, keys_BHMK, values_BHMV, mixed_RC, work, *seen)
        head = _next(claims, phase, heads)


@njit(**OPTIONS)
def _begin(claims, x_RD, input_RD, norm_2D, epsilon):
    """The first phase, where norms stand before sub-layers."""
    row = _taken(claims, 0, len(x_RD))
    while row >= 0:
        normed_row(x_RD[row], input_RD[row], norm_2D[0], norm_2D[1], epsilon)
        row = _next(claims, 0, len(x_RD))


@njit(**OPTIONS)
def _add_up(claims, phase, x_RD, y_RD, input_RD, norm_2D, epsilon, post):
    """A phase: the end of a sub-layer, and the input of the next one."""
    row = _taken(claims, phase, len(x_RD))
    while row >= 0:
        _added(row, x_RD, y_RD, input_RD, norm_2D, epsilon, post)
        row = _next(claims, phase, len(x_RD))


def _step_signature(kept):
    return void(
        int64[:, ::1], int64[:, ::1], int64[:, ::1], kept[::1],
        float32[:, ::1], float32[:, ::1], float32[:, :, ::1], float32, boolean,
        float32[:, ::1], float32[:, ::1], float32[:, ::1], float32[:, ::1], float32[:, ::1],
        int64[::1], int64[:, ::1], *SEEN, *SEEN,
    )  # fmt: skip


@njit([_step_signature(float32), _step_signature(uint16)], **OPTIONS)
def step(
    claims, matrices_L6, caches_L4, kept,
    biases_LC, scales_LC, norms_N2D, epsilon, post,
    x_RD, input_RD, wide_RC, mixed_RC, y_RD,
    sizes, nodes_RH, own_sentences, own_nodes, own_counts, sentences, nodes, counts,
):  # fmt: skip
    """The part of a step that this thread finds to do; `input_RD` then is what comes of it.

    `claims` are zeros for each phase: how many of its units were taken, and are done. `sizes` are sentences,
    heads, tree and source nodes, channels of a head's keys and values, and the levels of rounded inputs.
    Caches hold numbers of the kind that `kept` has.
    """
    many, heads, room, longest, width, value_width, levels = sizes
    rows, channels = x_RD.shape
    keys, values, inner = heads * width, heads * value_width, biases_LC.shape[1]
    inner -= 3 * keys + values + 3 * channels
    # Before anything is taken: a thread that finds no room for it has nothing that others would wait for.
    product_room = _room(rows, max(channels, values, inner))
    work = np.empty(width + value_width + max(own_nodes.shape[1], nodes.shape[1]), np.float32)
    phase = 0
    if not post:
        _begin(claims, x_RD, input_RD, norms_N2D[0], epsilon)
        phase = 1
    for layer in range(len(matrices_L6)):
        matrices, norms_32D = matrices_L6[layer], norms_N2D[3 * layer + 1 :]
        rest = biases_LC[layer], scales_LC[layer], levels, product_room
        own_keys = carray(_at(caches_L4[layer, 0], kept), (many, heads, room, width))
        own_values = carray(_at(caches_L4[layer, 1], kept), (many, heads, room, value_width))
        source_keys = carray(_at(caches_L4[layer, 2], kept), (many, heads, longest, width))
        source_values = carray(_at(caches_L4[layer, 3], kept), (many, heads, longest, value_width))
        projected, query, bent = wide_RC[:, : 2 * keys + values], wide_RC[:, :keys], wide_RC[:, :inner]
        _multiply(claims, phase, matrices[0], input_RD, projected, 0, False, rest)
        seen, begin = (own_sentences, own_nodes, own_counts), 2 * keys + values
        _attend(claims, phase + 1, projected, own_keys, own_values, mixed_RC, nodes_RH, work, seen)
        _multiply(claims, phase + 2, matrices[1], mixed_RC, y_RD, begin, False, rest)
        _add_up(claims, phase + 3, x_RD, y_RD, input_RD, norms_32D[0], epsilon, post)
        _multiply(claims, phase + 4, matrices[2], input_RD, query, begin + channels, False, rest)
        seen, begin = (sentences, nodes, counts), begin + channels + keys
        _attend(claims, phase + 5, query, source_keys, source_values, mixed_RC, nodes_RH[:0], work, seen)
        _multiply(claims, phase + 6, matrices[3], mixed_RC, y_RD, begin, False, rest)
        _add_up(claims, phase + 7, x_RD, y_RD, input_RD, norms_32D[1], epsilon, post)
        begin += channels
        _multiply(claims, phase + 8, matrices[4], input_RD, bent, begin, True, rest)
        _multiply(claims, phase + 9, matrices[5], bent, y_RD, begin + inner, False, rest)
        _add_up(claims, phase + 10, x_RD, y_RD, input_RD, norms_32D[2], epsilon, post)
        phase += 11


@njit(
    void(int64[:, ::1], int64, float32[:, ::1], float32[:, ::1], float32[::1], float32[::1], int64), **OPTIONS
)
def product(claims, matrix, x_RI, out_RO, bias_O, scale_O, levels):
    """The part of a product that this thread finds to do."""
    _multiply(claims, 0, matrix, x_RI, out_RO, 0, False, (bias_O, scale_O, levels, _room(*x_RI.shape)))
