"""Building blocks of the kernels that Numba compiles. Import this module only if Numba is installed.

Kernels call an intrinsic without its first parameter, `context`.
"""

import hashlib
import math
import pickle
import sys

import llvmlite
import numba
import numpy as np
from llvmlite import ir
from numba import float32, int32, int64, types, uint16
from numba.core.caching import NullCache
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler, CompileResult
from numba.core.registry import cpu_target
from numba.core.serialize import dumps
from numba.extending import intrinsic

from nmt_cli.runtime.kernels.loading import KernelFiles, announce_compiling

if numba.config.DISABLE_JIT:
    raise ImportError("NUMBA_DISABLE_JIT is set, and these functions can't be interpreted")

# Kernels that Python calls have signatures. So they are compiled when their module is imported, once for all
# worker processes that are forked later.
OPTIONS = {
    # By default a division by zero raises, and a loop with such a check is not vectorised.
    "error_model": "numpy",
    "fastmath": {"reassoc", "contract", "arcp", "nsz"},  # without the flags that forbid nan and infinity
    "nogil": True,
    "no_cfunc_wrapper": True,  # compiling it takes a tenth of the time, and nothing calls it
}

PROCESSOR = cpu_target.target_context.codegen().magic_tuple()
FEATURES = PROCESSOR[2].split(",")
"""Instruction sets that Numba compiles for. Its settings may name another processor than this machine has."""

FILES = KernelFiles(
    numba.config.CACHE_DIR, (PROCESSOR, numba.__version__, llvmlite.__version__, sys.implementation.cache_tag)
)


class _Cache(NullCache):
    """A Numba cache of code in `FILES`. Numba's own cache ignores changes of imported files."""

    def __init__(self, function):
        self._name = f"{function.__module__}.{function.__qualname__}"

    def _file(self, signature):
        """Return the name of the file for a function with these argument types."""
        return f"{self._name}-{hashlib.sha256(str(signature).encode()).hexdigest()[:16]}"

    def load_overload(self, signature, target_context):
        target_context.refresh()
        name = self._file(signature)
        content = FILES.read(name)
        if not content:
            announce_compiling()
            FILES.claim(name)  # waits if another process compiles this function
            if content := FILES.read(name):
                FILES.release(name)
        return content and CompileResult._rebuild(target_context, *pickle.loads(content))

    def save_overload(self, signature, result):
        if not result.library.has_dynamic_globals:
            FILES.write(self._file(signature), dumps(result._reduce()))
        FILES.release(self._file(signature))


class _Part(JITCodeLibrary):
    """The code of a function that only compiled functions call, so that each caller has a copy.

    LLVM optimises the copy together with the caller. Numba would do so here too, and make machine code that
    nothing calls, for each level of calls. That took half of the time.
    """

    codegen = property(lambda self: self)  # Numba asks it for `set_env` only

    def _optimize_final_module(self):
        pass

    def _finalize_final_module(self):
        self._finalize_dynamic_globals()
        self._finalized = True

    def get_pointer_to_function(self, name):
        return 0  # Numba's value for a function without a wrapper for Python

    def set_env(self, name, environment):
        pass


class _PartCompiler(Compiler):
    def define_pipelines(self):
        self.state.library = _Part(self.state.targetctx.codegen(), self.state.func_id.func_qualname)
        return super().define_pipelines()


def njit(signatures=None, **options):
    """Return a decorator that compiles a function like `numba.njit`, or loads its code from a file.

    Compile `signatures`, one or a list, at once. Without signatures, compile as part of each caller.
    """

    def decorate(function):
        if not signatures:
            # Python calls only functions with signatures. Others need no code that unpacks Python's objects.
            return numba.njit(**options, no_cpython_wrapper=True, pipeline_class=_PartCompiler)(function)
        dispatcher = numba.njit(**options)(function)
        dispatcher._cache = _Cache(function)
        try:
            for signature in signatures if isinstance(signatures, list) else [signatures]:
                dispatcher.compile(signature)
        except BaseException:
            FILES.release()  # lets other processes compile
            raise
        dispatcher.disable_compile()
        return dispatcher

    return decorate


LOG2_E = np.float32(1 / math.log(2))
LN_2 = np.float32(math.log(2))


def _same(context, builder, signature, arguments):
    """Generate code that returns the first of `arguments` unchanged."""
    return arguments[0]


@intrinsic
def as_float32(context, stored):
    """Return a float32 as it is, or convert a bfloat16 to float32. NumPy stores bfloat16 as uint16."""

    def widened(context, builder, signature, arguments):
        # bfloat16 is the upper half of float32's bits.
        bits = builder.zext(arguments[0], ir.IntType(32))
        return builder.bitcast(builder.shl(bits, ir.Constant(ir.IntType(32), 16)), ir.FloatType())

    return float32(stored), _same if stored == types.float32 else widened


@intrinsic
def rounded_as(context, x, like):
    """Convert a float32 to the type of `like`: float32, or the nearest bfloat16 as uint16. nan stays nan."""

    def narrowed(context, builder, signature, arguments):
        int_ = ir.IntType(32)
        bits = builder.bitcast(arguments[0], int_)
        odd = builder.and_(builder.lshr(bits, int_(16)), int_(1))
        rounded = builder.lshr(builder.add(builder.add(bits, int_(0x7FFF)), odd), int_(16))
        # The sum above turns some nan into infinity.
        is_nan = builder.fcmp_unordered("uno", arguments[0], arguments[0])
        return builder.trunc(builder.select(is_nan, int_(0x7FC0), rounded), ir.IntType(16))

    if like == types.float32:
        return float32(x, like), _same
    return uint16(x, like), narrowed


def _with_equal_bits(kind):
    """Return a generator of code that reads the bits of the first argument as the LLVM type `kind`."""
    return lambda context, builder, signature, arguments: builder.bitcast(arguments[0], kind)


@intrinsic
def float_of(context, bits):
    """Return the float32 with the bits of an int32."""
    return float32(bits), _with_equal_bits(ir.FloatType())


@intrinsic
def bits_of(context, x):
    """Return the bits of a float32 as an int32."""
    return int32(x), _with_equal_bits(ir.IntType(32))


@intrinsic
def _two_to_the(context, power):
    """Return 2^power as float32, for an int32 from -126 to 127."""

    def generate(context, builder, signature, arguments):
        # The float32 has the fraction 0, and its exponent is stored plus 127.
        exponent = builder.add(arguments[0], ir.Constant(ir.IntType(32), 127))
        return builder.bitcast(builder.shl(exponent, ir.Constant(ir.IntType(32), 23)), ir.FloatType())

    return float32(power), generate


@intrinsic
def added(context, numbers, index, value):
    """Add `value` to `numbers[index]`, an int64, atomically among threads. Return the number before."""

    def generate(context, builder, signature, arguments):
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        return builder.atomic_rmw("add", builder.gep(array.data, [arguments[1]]), arguments[2], "seq_cst")

    return int64(numbers, int64, int64), generate


@njit(**OPTIONS)
def exp(x):
    """Return e^x for x of at most 0, with an absolute error of at most 1e-7. `math.exp` is not vectorised."""
    x = np.float32(-87.0) if x < np.float32(-87.0) else x  # 2^twos would underflow; nan stays nan
    twos = np.floor(x * LOG2_E + np.float32(0.5))
    remainder = x - twos * LN_2
    # The remainder is at most ln(2) / 2 from 0. There a Taylor series is exact enough.
    total = np.float32(1 / 5040)
    for factorial in (720, 120, 24, 6, 2, 1, 1):
        total = total * remainder + np.float32(1 / factorial)
    return total * _two_to_the(np.int32(twos))


@njit(**OPTIONS)
def _reordered(bits):
    """Map the bits of float32, as int32, to int32 that sort as the floats, and back. nan has any rank."""
    return np.int32(bits ^ ((bits >> np.int32(31)) & np.int32(0x7FFFFFFF)))


@njit(**OPTIONS)
def maximum(x_V):
    """Return the maximum of a row of float32. For a row with nan, the result is arbitrary."""
    highest = np.int32(-(1 << 31))
    for v in range(len(x_V)):
        highest = max(highest, _reordered(bits_of(x_V[v])))  # a maximum of integers is vectorised
    return float_of(_reordered(highest))
