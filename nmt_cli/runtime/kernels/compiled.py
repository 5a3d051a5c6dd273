"""What kernels compiled by Numba are made of: how they are compiled, bfloat16, products of a few rows, and an
exponential.

Import it only if Numba is installed.
"""

import hashlib
import math
import pickle
import sys

import llvmlite
import numba
import numpy as np
from llvmlite import ir
from llvmlite.binding import initialize_native_asmparser
from numba import boolean, float32, int8, int32, int64, types, uint16
from numba.core.caching import NullCache
from numba.core.compiler import CompileResult
from numba.core.registry import cpu_target
from numba.core.serialize import dumps
from numba.extending import intrinsic

from nmt_cli.runtime.kernels.loading import KernelFiles, announce_compiling

if numba.config.DISABLE_JIT:
    raise ImportError("NUMBA_DISABLE_JIT is set, and these functions can't be interpreted")

# Kernels that Python calls are given their signatures, and so are compiled when their module is imported:
# before worker processes are forked, once for all of them.
OPTIONS = {
    # By default a division by zero raises, and a loop with such a check is not vectorised.
    "error_model": "numpy",
    "fastmath": {"reassoc", "contract", "arcp", "nsz"},  # all but what takes nan and infinity for impossible
    "nogil": True,
    "no_cfunc_wrapper": True,  # it takes a tenth of the time to compile, and nothing calls it
}

PROCESSOR = cpu_target.target_context.codegen().magic_tuple()
FEATURES = PROCESSOR[2].split(",")
"""Of the processor that Numba compiles for, which may be told to be another than is there."""

MULTIPLIES_BYTES = "+avx512vnni" in FEATURES
"""Whether it has an instruction for products of bytes."""

if MULTIPLIES_BYTES:
    initialize_native_asmparser()

FILES = KernelFiles(
    numba.config.CACHE_DIR, (PROCESSOR, numba.__version__, llvmlite.__version__, sys.implementation.cache_tag)
)


class _Cache(NullCache):
    """Store compiled code in `FILES`. Numba's own cache ignores changes of imported files."""

    def __init__(self, function):
        self._name = f"{function.__module__}.{function.__qualname__}"

    def _file(self, signature):
        return f"{self._name}-{hashlib.sha256(str(signature).encode()).hexdigest()[:16]}"

    def load_overload(self, signature, target_context):
        target_context.refresh()
        content = FILES.read(self._file(signature))
        if not content:
            announce_compiling()
        return content and CompileResult._rebuild(target_context, *pickle.loads(content))

    def save_overload(self, signature, result):
        if not result.library.has_dynamic_globals:
            FILES.write(self._file(signature), dumps(result._reduce()))


def njit(signatures=None, **options):
    """Compile a function as `numba.njit` does, or load what was compiled before.

    Without signatures, a function is compiled as part of its callers.
    """

    def decorate(function):
        dispatcher = numba.njit(**options)(function)
        dispatcher._cache = _Cache(function)
        for signature in signatures if isinstance(signatures, list) else filter(None, [signatures]):
            dispatcher.compile(signature)
        if signatures:
            dispatcher.disable_compile()
        return dispatcher

    return decorate


LOG2_E = np.float32(1 / math.log(2))
LN_2 = np.float32(math.log(2))


@intrinsic
def number(context, kept):
    """A float32, or the bits of a bfloat16 as uint16, since NumPy has no bfloat16, as float32."""

    def same(context, builder, signature, arguments):
        return arguments[0]

    def widened(context, builder, signature, arguments):
        # bfloat16 is the upper half of float32's bits.
        bits = builder.zext(arguments[0], ir.IntType(32))
        return builder.bitcast(builder.shl(bits, ir.Constant(ir.IntType(32), 16)), ir.FloatType())

    return float32(kept), same if kept == types.float32 else widened


@intrinsic
def kept_as(context, x, like):
    """The inverse of `number`: `x` in the type of `like`, rounded to the nearest bfloat16, to even in the
    middle."""

    def same(context, builder, signature, arguments):
        return arguments[0]

    def narrowed(context, builder, signature, arguments):
        whole = ir.IntType(32)
        bits = builder.bitcast(arguments[0], whole)
        odd = builder.and_(builder.lshr(bits, whole(16)), whole(1))
        rounded = builder.lshr(builder.add(builder.add(bits, whole(0x7FFF)), odd), whole(16))
        # The sum above would make some nan an infinity.
        nan = builder.fcmp_unordered("uno", arguments[0], arguments[0])
        return builder.trunc(builder.select(nan, whole(0x7FC0), rounded), ir.IntType(16))

    return (float32 if like == types.float32 else uint16)(
        x, like
    ), same if like == types.float32 else narrowed


@intrinsic
def float_of(context, bits):
    """The float32 that has the bits of an int32."""

    def made(context, builder, signature, arguments):
        return builder.bitcast(arguments[0], ir.FloatType())

    return float32(bits), made


@intrinsic
def bits_of(context, x):
    """The inverse of `float_of`."""

    def made(context, builder, signature, arguments):
        return builder.bitcast(arguments[0], ir.IntType(32))

    return int32(x), made


@intrinsic
def _two_to_the(context, power):
    """2^power as float32, for an int32 from -126 to 127."""

    def made(context, builder, signature, arguments):
        # A float32 whose fraction is 0: only its exponent, which is stored plus 127, needs to be written.
        exponent = builder.add(arguments[0], ir.Constant(ir.IntType(32), 127))
        return builder.bitcast(builder.shl(exponent, ir.Constant(ir.IntType(32), 23)), ir.FloatType())

    return float32(power), made


@intrinsic
def added(context, numbers, place, value):
    """What one of several whole numbers was before `value` was added to it, which no other thread cuts
    short."""

    def made(context, builder, signature, arguments):
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        return builder.atomic_rmw("add", builder.gep(array.data, [arguments[1]]), arguments[2], "seq_cst")

    return int64(numbers, int64, int64), made


@intrinsic
def fetch(context, address):
    """Let the processor read what is at an address, for use soon; it may be anywhere."""

    def made(context, builder, signature, arguments):
        pointer = builder.inttoptr(arguments[0], ir.IntType(8).as_pointer())
        whole, name = ir.IntType(32), "llvm.prefetch.p0"
        kind = ir.FunctionType(ir.VoidType(), [pointer.type, whole, whole, whole])
        function = builder.module.globals.get(name) or ir.Function(builder.module, kind, name)
        builder.call(function, [pointer, whole(0), whole(3), whole(1)])  # to read it, into all caches, data
        return context.get_dummy_value()

    return types.void(int64), made


INPUTS = 16
"""Each a float, or four bytes."""


def _adder(rows, kind, more):
    """`_in_tiles` for so many rows. Weights are of this `kind`; `more` adds products to totals."""

    def add(context, sums_RO, address, x_RI, first):
        def made(context, builder, signature, arguments):
            whole, vector = ir.IntType(32), ir.VectorType(kind, 16)
            sums, x = (
                context.make_array(kind)(context, builder, value)
                for kind, value in zip(signature.args[::2], arguments[::2], strict=True)
            )
            places = builder.bitcast(sums.data, vector.as_pointer())
            places = [builder.gep(places, [whole(i)]) for i in range(4 * rows)]
            weights = builder.inttoptr(arguments[1], vector.as_pointer())
            size = signature.args[2].dtype.bitwidth // 8
            step = builder.sdiv(builder.extract_value(x.strides, 0), arguments[3].type(size))
            firsts = (builder.add(arguments[3], builder.mul(step, step.type(row))) for row in range(rows))
            begins = [builder.bitcast(builder.gep(x.data, [at]), kind.as_pointer()) for at in firsts]
            totals = [builder.load(place, align=4) for place in places]
            for i in range(INPUTS):
                four = [builder.load(builder.gep(weights, [whole(4 * i + o)]), align=4) for o in range(4)]
                for row, begin in enumerate(begins):
                    x = builder.load(builder.gep(begin, [whole(i)]), align=size)
                    each = _everywhere(builder, x, vector)
                    for o, weight in enumerate(four, start=4 * row):
                        totals[o] = more(builder, totals[o], each, weight)
            for place, total in zip(places, totals, strict=True):
                builder.store(total, place, align=4)
            return context.get_dummy_value()

        return types.void(sums_RO, int64, x_RI, int64), made

    return intrinsic(add)


def _everywhere(builder, x, vector):
    """`x` in all places of a vector."""
    one = builder.insert_element(ir.Constant(vector, ir.Undefined), x, ir.IntType(32)(0))
    nowhere = ir.Constant(ir.VectorType(ir.IntType(32), vector.count), [0] * vector.count)
    return builder.shuffle_vector(one, one, nowhere)


def _added_product(builder, totals, x, weights):
    """`totals` plus the products of floats."""
    product = builder.fmul(x, weights, flags=["contract"])
    return builder.fadd(totals, product, flags=["contract"])


def _added_products(builder, totals, unsigned, signed):
    """Return `totals` plus the products of four unsigned and four signed bytes in each number."""
    kind = totals.type
    code = ir.InlineAsm(ir.FunctionType(kind, [kind] * 3), "vpdpbusd $3, $2, $0", "=v,0,v,v")
    return builder.call(code, [totals, unsigned, signed])


@intrinsic
def _byte_at(context, address):
    """The int8 at an address."""

    def made(context, builder, signature, arguments):
        return builder.load(builder.inttoptr(arguments[0], ir.IntType(8).as_pointer()))

    return int8(int64), made


@numba.njit(**OPTIONS)
def _add_single_bytes(sums_RO, address, whole_RI, first):
    """Compute `add_byte_products` without the instruction for it. Unrolled, it takes seconds to compile."""
    for row in range(len(sums_RO)):
        for i in range(4 * INPUTS):
            for o in range(sums_RO.shape[1]):
                weight = np.int32(_byte_at(address + i // 4 * 256 + o * 4 + i % 4))
                sums_RO[row, o] += weight * np.int32(whole_RI[row, first + i])


def _in_tiles(kind, more):
    """How to add to 64 sums of each row what 16 of its inputs, from the number `first` on, make of the
    weights at an address: of each input a row of 64.

    A weight is loaded once for up to four rows, which may stand apart.
    """
    of_4, of_2, of_1 = (_adder(rows, kind, more) for rows in (4, 2, 1))

    @numba.njit(**OPTIONS)
    def add(sums_RO, address, x_RI, first):
        row, rows = 0, len(x_RI)
        while row + 4 <= rows:
            of_4(sums_RO[row:], address, x_RI[row:], first)
            row += 4
        if row + 2 <= rows:
            of_2(sums_RO[row:], address, x_RI[row:], first)
            row += 2
        if row < rows:
            of_1(sums_RO[row:], address, x_RI[row:], first)

    return add


add_products = _in_tiles(ir.FloatType(), _added_product)
add_byte_products = _in_tiles(ir.IntType(32), _added_products) if MULTIPLIES_BYTES else _add_single_bytes


@njit(boolean(int64[::1], int64, int64), **OPTIONS)
def wait(told, seen, turns):
    """Wait until the number in `told` is more than `seen`, for so many turns at most; whether it is."""
    for _ in range(turns):  # noqa: SIM110 - Numba knows no `any`
        if added(told, 0, 0) > seen:
            return True
    return False


@njit(**OPTIONS)
def exp(x):
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
def order_of(x):
    """An int32 that is in the order of floats, of which the maximum is vectorised; nan may be anywhere."""
    bits = bits_of(x)
    return np.int32(bits ^ ((bits >> np.int32(31)) & np.int32(0x7FFFFFFF)))


@njit(**OPTIONS)
def float_at(order):
    """The inverse of `order_of`."""
    return float_of(np.int32(order ^ ((order >> np.int32(31)) & np.int32(0x7FFFFFFF))))
