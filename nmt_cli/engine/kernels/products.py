"""Products of a few rows with packed matrices, as vector instructions that Numba compiles.

A packed matrix has blocks of `BLOCK` outputs. In a block, the weights of one input (fp32), or of four inputs
(int8), are adjacent for all outputs. So a product reads its weights once, from the first to the last byte.
LLVM chooses the instructions for vectors of 16 numbers, on any processor. Only 8-bit products need
instructions by name, because LLVM does not find them.

Functions take addresses of memory as integers. They begin with a small tile: the sums of up to four rows and
up to 64 outputs, which stay in registers while the tile reads all inputs.

Axes: R rows, I inputs, O outputs of a block.
"""

from llvmlite import ir
from llvmlite.binding import initialize_native_asmparser
from numba import int32, int64, types
from numba.core import cgutils
from numba.extending import intrinsic

from nmt_cli.runtime.kernels.compiled import FEATURES, OPTIONS, njit

BLOCK = 64
"""Outputs of a block."""

LANES = 16
"""Numbers in a vector."""

INPUTS_AT_ONCE = 512
"""Inputs of a tile. Their weights, 128 KiB in fp32, stay in the cache of a core for the next rows."""

WIDE = "+avx512f" in FEATURES
"""Whether 32 registers hold a vector of 16 each. Otherwise 16 registers hold half of a vector."""

VNNI, AVX2 = "+avx512vnni" in FEATURES, "+avx2" in FEATURES
"""Instructions for products of bytes. VNNI adds four products at once. AVX2 needs four instructions."""

OFFSET = 128 if VNNI else 0
"""VNNI multiplies unsigned by signed bytes, so inputs are stored plus this number."""

if VNNI:
    initialize_native_asmparser()


def _tile(rows, vectors, bytes_):
    """Return an intrinsic that adds the products of `rows` rows and `vectors` x 16 outputs to sums in memory.

    Its arguments are addresses of the weights, of the inputs of the first row and of its sums, the distance
    of two rows of inputs in bytes, and the number of steps. A step is one input, or four bytes.
    """

    def tile(context, weights, x, stride, steps, sums):
        def generate(context, builder, signature, arguments):
            number = ir.IntType(32) if bytes_ else ir.FloatType()
            vector, long = ir.VectorType(number, LANES), ir.IntType(64)
            weights, x, stride, steps, sums = arguments
            weights, sums = (builder.inttoptr(at, vector.as_pointer()) for at in (weights, sums))
            inputs = [
                builder.inttoptr(builder.add(x, builder.mul(stride, long(row))), number.as_pointer())
                for row in range(rows)
            ]
            places = [
                builder.gep(sums, [long(row * BLOCK // LANES + v)])
                for row in range(rows)
                for v in range(vectors)
            ]
            totals = [cgutils.alloca_once_value(builder, builder.load(place, align=4)) for place in places]
            with cgutils.for_range(builder, steps) as loop:
                first = builder.mul(loop.index, long(BLOCK // LANES))
                here = [
                    builder.load(builder.gep(weights, [builder.add(first, long(v))]), align=4)
                    for v in range(vectors)
                ]
                for row in range(rows):
                    value = builder.load(builder.gep(inputs[row], [loop.index]), align=1 if bytes_ else 4)
                    repeated = _repeated(builder, value, vector)
                    for v in range(vectors):
                        total = totals[row * vectors + v]
                        add = _add_bytes if bytes_ else _add_floats
                        builder.store(add(builder, builder.load(total), repeated, here[v]), total)
            for place, total in zip(places, totals, strict=True):
                builder.store(builder.load(total), place, align=4)
            return context.get_dummy_value()

        return types.void(*[int64] * 5), generate

    return intrinsic(tile)


def _repeated(builder, x, vector):
    """Generate a vector whose elements are all `x`."""
    first = builder.insert_element(ir.Constant(vector, ir.Undefined), x, ir.IntType(32)(0))
    zeros = ir.Constant(ir.VectorType(ir.IntType(32), vector.count), [0] * vector.count)
    return builder.shuffle_vector(first, first, zeros)


def _add_floats(builder, totals, x, weights):
    return builder.fadd(totals, builder.fmul(x, weights, flags=["contract"]), flags=["contract"])


def _add_bytes(builder, totals, x, weights):
    """Generate `totals` plus, in each of 16 int32, the products of four bytes of `x` and of `weights`."""
    if VNNI:
        kind = ir.FunctionType(totals.type, [totals.type] * 3)
        code = ir.InlineAsm(kind, "vpdpbusd $3, $2, $0", "=v,0,v,v")
        return builder.call(code, [totals, x, weights])
    if AVX2:
        return _joined(
            builder, [_add_bytes_avx2(builder, *_halves(builder, totals, x, weights, i)) for i in (0, 1)]
        )
    return _add_bytes_plainly(builder, totals, x, weights)


def _halves(builder, totals, x, weights, half):
    """Generate the first or second half of each of three vectors."""
    indices = ir.Constant(ir.VectorType(ir.IntType(32), 8), [*range(8 * half, 8 * half + 8)])
    return [builder.shuffle_vector(v, v, indices) for v in (totals, x, weights)]


def _joined(builder, halves):
    indices = ir.Constant(ir.VectorType(ir.IntType(32), LANES), [*range(LANES)])
    return builder.shuffle_vector(*halves, indices)


def _call(builder, name, result, *arguments):
    """Generate a call of one of LLVM's functions for an instruction."""
    kind = ir.FunctionType(result, [argument.type for argument in arguments])
    function = builder.module.globals.get(name) or ir.Function(builder.module, kind, name)
    return builder.call(function, arguments)


def _add_bytes_avx2(builder, totals, x, weights):
    """Generate the sum for 8 int32. The instruction needs unsigned `x`, so its signs move to the weights.

    No sum of two products overflows 16 bits, because bytes are from -127 to 127.
    """
    bytes_, shorts = ir.VectorType(ir.IntType(8), 32), ir.VectorType(ir.IntType(16), 16)
    x, weights = (builder.bitcast(v, bytes_) for v in (x, weights))
    positive, signed = (_call(builder, "llvm.x86.avx2.psign.b", bytes_, v, x) for v in (x, weights))
    pairs = _call(builder, "llvm.x86.avx2.pmadd.ub.sw", shorts, positive, signed)
    ones = ir.Constant(shorts, [1] * 16)
    return builder.add(totals, _call(builder, "llvm.x86.avx2.pmadd.wd", totals.type, pairs, ones))


def _add_bytes_plainly(builder, totals, x, weights):
    for shift in (24, 16, 8, 0):  # moves one byte to the top, and then down with its sign
        up, down = (ir.Constant(totals.type, [bits] * LANES) for bits in (shift, 24))
        a, b = (builder.ashr(builder.shl(v, up), down) for v in (x, weights))
        totals = builder.add(totals, builder.mul(a, b))
    return totals


_float_4, _float_2, _float_1 = (
    _tile(rows, vectors, False) for rows, vectors in ((4, 4 if WIDE else 1), (2, 4 if WIDE else 2), (1, 4))
)
_byte_4, _byte_2, _byte_1 = (
    _tile(rows, vectors, True) for rows, vectors in ((4, 4 if WIDE else 1), (2, 4 if WIDE else 2), (1, 4))
)
OUTPUTS_4, OUTPUTS_2 = (BLOCK, BLOCK) if WIDE else (LANES, 2 * LANES)


@intrinsic
def dot_bytes(context, x, weights, steps):
    """Return the sum of the products of two rows of bytes, as int32. A step is 64 bytes."""

    def generate(context, builder, signature, arguments):
        number = ir.IntType(32)
        vector = ir.VectorType(number, LANES)
        x, weights = (builder.inttoptr(at, vector.as_pointer()) for at in arguments[:2])
        total = cgutils.alloca_once_value(builder, ir.Constant(vector, [0] * LANES))
        with cgutils.for_range(builder, arguments[2]) as loop:
            here = [builder.load(builder.gep(row, [loop.index]), align=1) for row in (x, weights)]
            builder.store(_add_bytes(builder, builder.load(total), *here), total)
        return _call(builder, f"llvm.vector.reduce.add.v{LANES}i32", number, builder.load(total))

    return int32(int64, int64, int64), generate


@njit(**OPTIONS)
def _add_some_floats(rows, weights, x, stride, steps, sums):
    row = 0
    while row + 4 <= rows:
        for o in range(0, BLOCK, OUTPUTS_4):
            _float_4(weights + 4 * o, x + row * stride, stride, steps, sums + 4 * (row * BLOCK + o))
        row += 4
    if row + 2 <= rows:
        for o in range(0, BLOCK, OUTPUTS_2):
            _float_2(weights + 4 * o, x + row * stride, stride, steps, sums + 4 * (row * BLOCK + o))
        row += 2
    if row < rows:
        _float_1(weights, x + row * stride, stride, steps, sums + 4 * row * BLOCK)


@njit(**OPTIONS)
def _add_some_bytes(rows, weights, x, stride, steps, sums):
    row = 0
    while row + 4 <= rows:
        for o in range(0, BLOCK, OUTPUTS_4):
            _byte_4(weights + 4 * o, x + row * stride, stride, steps, sums + 4 * (row * BLOCK + o))
        row += 4
    if row + 2 <= rows:
        for o in range(0, BLOCK, OUTPUTS_2):
            _byte_2(weights + 4 * o, x + row * stride, stride, steps, sums + 4 * (row * BLOCK + o))
        row += 2
    if row < rows:
        _byte_1(weights, x + row * stride, stride, steps, sums + 4 * row * BLOCK)


@njit(**OPTIONS)
def add_floats(rows, weights, x, stride, inputs, sums):
    """Add to the float32 sums [R, 64] the products of rows with a block of weights.

    All but `rows` and `inputs` are addresses, and `stride` is the distance of two rows in bytes.
    """
    for first in range(0, inputs, INPUTS_AT_ONCE):
        steps = min(inputs - first, INPUTS_AT_ONCE)
        _add_some_floats(rows, weights + 4 * first * BLOCK, x + 4 * first, stride, steps, sums)


@njit(**OPTIONS)
def add_bytes(rows, weights, x, stride, inputs, sums):
    """Add to the int32 sums [R, 64] the products of rows of bytes with a block of 8-bit weights.

    `inputs` is a multiple of 4. The other arguments are as in `add_floats`.
    """
    for first in range(0, inputs, 4 * INPUTS_AT_ONCE):
        steps = min(inputs - first, 4 * INPUTS_AT_ONCE) // 4
        _add_some_bytes(rows, weights + first * BLOCK, x + first, stride, steps, sums)
