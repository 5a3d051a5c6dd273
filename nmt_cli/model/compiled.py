"""A decoder's step for few rows as one compiled function, which several threads run side by side.

A step is a row of phases: products, attention, norms. Each is made of units, and whoever is free takes the
next one; nobody begins a phase before the one before it is done. So a thread that comes late, or never, costs
nothing but its help. Weights are read as oneDNN lays them out (`torch_private.blocks_of`): blocks of 64
outputs, in each of which the weights of one input stand side by side.
"""

import numpy as np
from llvmlite import ir
from numba import boolean, carray, float32, int64, njit, types, void
from numba.extending import intrinsic

from nmt_cli.attention.compiled import SEEN, attend_head, keep_head
from nmt_cli.machine.compiled import OPTIONS, added, fetch
from nmt_cli.machine.torch_private import BLOCK, MULTIPLE
from nmt_cli.model.pointwise.compiled import normed_row

INPUTS = 8
"""So many are multiplied at a time: then sums are read and written only once for them."""

AHEAD, LINE = 4, 64
"""Where several rows are multiplied by each weight, what comes so many times later is read meanwhile; and the
bytes that a processor reads at a time."""


@intrinsic
def _floats_at(context, address):
    """The memory at an address as numbers."""

    def made(context, builder, signature, arguments):
        return builder.inttoptr(arguments[0], ir.FloatType().as_pointer())

    return types.CPointer(float32)(int64), made


@njit(**OPTIONS)
def _read_ahead(address):
    for line in range(INPUTS * BLOCK * 4 // LINE):
        fetch(address + line * LINE)


@njit(**OPTIONS)
def _product(block, address, x_RI, out_RO, bias_O, bend, sums):
    """A unit of a product: the outputs of one block, and their ReLU if they are to `bend`."""
    rows, inputs = x_RI.shape
    wide = inputs + -inputs % MULTIPLE
    weights = carray(_floats_at(address + block * wide * BLOCK * 4), (wide, BLOCK))
    sums[: rows * BLOCK] = 0
    first = 0
    while first + INPUTS <= inputs:
        w = weights[first : first + INPUTS]
        if rows > 1:  # or else there is too little to do meanwhile
            _read_ahead(address + (block * wide + first + AHEAD * INPUTS) * BLOCK * 4)
        for row in range(rows):
            x = x_RI[row, first : first + INPUTS]
            total = sums[row * BLOCK : (row + 1) * BLOCK]
            x0, x1, x2, x3, x4, x5, x6, x7 = x[0], x[1], x[2], x[3], x[4], x[5], x[6], x[7]
            for o in range(BLOCK):
                first_half = w[0, o] * x0 + w[1, o] * x1 + w[2, o] * x2 + w[3, o] * x3
                total[o] += first_half + w[4, o] * x4 + w[5, o] * x5 + w[6, o] * x6 + w[7, o] * x7
        first += INPUTS
    while first < inputs:
        for row in range(rows):
            for o in range(BLOCK):
                sums[row * BLOCK + o] += weights[first, o] * x_RI[row, first]
        first += 1
    begin = block * BLOCK
    here = min(BLOCK, out_RO.shape[1] - begin)
    for row in range(rows):
        for o in range(here):
            y = sums[row * BLOCK + o] + bias_O[begin + o]
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
def _multiply(claims, phase, address, x_RI, out_RO, bias_O, bend, sums):
    """A phase: x times a matrix, plus a bias."""
    units = (out_RO.shape[1] + BLOCK - 1) // BLOCK
    block = _taken(claims, phase, units)
    while block >= 0:
        _product(block, address, x_RI, out_RO, bias_O, bend, sums)
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


@njit(
    void(
        int64[:, ::1], int64[:, ::1], int64[:, ::1], float32[:, ::1], float32[:, :, ::1], float32, boolean,
        float32[:, ::1], float32[:, ::1], float32[:, ::1], float32[:, ::1], float32[:, ::1],
        int64[::1], int64[:, ::1], *SEEN, *SEEN,
    ),
    **OPTIONS,
)  # fmt: skip
def step(
    claims, matrices_L6, caches_L4, biases_LC, norms_N2D, epsilon, post,
    x_RD, input_RD, wide_RC, mixed_RC, y_RD,
    sizes, nodes_RH, own_sentences, own_nodes, own_counts, sentences, nodes, counts,
):  # fmt: skip
    """The part of a step that this thread finds to do; `input_RD` then is what comes of it.

    `claims` are zeros for each phase: how many of its units were taken, and are done. `sizes` are sentences,
    heads, tree and source nodes, and channels of a head's keys and values.
    """
    many, heads, room, longest, width, value_width = sizes
    rows, channels = x_RD.shape
    keys, values, inner = heads * width, heads * value_width, biases_LC.shape[1]
    inner -= 3 * keys + values + 3 * channels
    # Before anything is taken: a thread that finds no room for it has nothing that others would wait for.
    sums = np.empty(rows * BLOCK, np.float32)
    work = np.empty(width + value_width + max(own_nodes.shape[1], nodes.shape[1]), np.float32)
    phase = 0
    if not post:
        _begin(claims, x_RD, input_RD, norms_N2D[0], epsilon)
        phase = 1
    for layer in range(len(matrices_L6)):
        matrices, biases, norms_32D = matrices_L6[layer], biases_LC[layer], norms_N2D[3 * layer + 1 :]
        own_keys = carray(_floats_at(caches_L4[layer, 0]), (many, heads, room, width))
        own_values = carray(_floats_at(caches_L4[layer, 1]), (many, heads, room, value_width))
        source_keys = carray(_floats_at(caches_L4[layer, 2]), (many, heads, longest, width))
        source_values = carray(_floats_at(caches_L4[layer, 3]), (many, heads, longest, value_width))
        projected, query, bent = wide_RC[:, : 2 * keys + values], wide_RC[:, :keys], wide_RC[:, :inner]
        end = 2 * keys + values
        _multiply(claims, phase, matrices[0], input_RD, projected, biases[:end], False, sums)
        seen = own_sentences, own_nodes, own_counts
        _attend(claims, phase + 1, projected, own_keys, own_values, mixed_RC, nodes_RH, work, seen)
        begin, end = end, end + channels
        _multiply(claims, phase + 2, matrices[1], mixed_RC, y_RD, biases[begin:end], False, sums)
        _add_up(claims, phase + 3, x_RD, y_RD, input_RD, norms_32D[0], epsilon, post)
        begin, end = end, end + keys
        _multiply(claims, phase + 4, matrices[2], input_RD, query, biases[begin:end], False, sums)
        seen = sentences, nodes, counts
        _attend(claims, phase + 5, query, source_keys, source_values, mixed_RC, nodes_RH[:0], work, seen)
        begin, end = end, end + channels
        _multiply(claims, phase + 6, matrices[3], mixed_RC, y_RD, biases[begin:end], False, sums)
        _add_up(claims, phase + 7, x_RD, y_RD, input_RD, norms_32D[1], epsilon, post)
        begin, end = end, end + inner
        _multiply(claims, phase + 8, matrices[4], input_RD, bent, biases[begin:end], True, sums)
        begin, end = end, end + channels
        _multiply(claims, phase + 9, matrices[5], bent, y_RD, biases[begin:end], False, sums)
        _add_up(claims, phase + 10, x_RD, y_RD, input_RD, norms_32D[2], epsilon, post)
        phase += 11


@njit(void(int64[:, ::1], int64, float32[:, ::1], float32[:, ::1], float32[::1]), **OPTIONS)
def product(claims, matrix, x_RI, out_RO, bias_O):
    """The part of a product that this thread finds to do."""
    sums = np.empty(len(x_RI) * BLOCK, np.float32)
    _multiply(claims, 0, matrix, x_RI, out_RO, bias_O, False, sums)
