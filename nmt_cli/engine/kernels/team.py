"""Threads that share the work of one compiled call.

All threads of a team call the same function with the same arguments. The function is a sequence of phases,
and a phase consists of units, such as blocks of a product, heads or rows. Each thread takes the next unit. No
thread starts a phase before all units of the phase before are done. So a thread that starts late, or never,
only does less work: the units of a phase that is over are gone, and its loop passes on.

`team` is an array of 16 int64: at index 0 the number of the phase and of its taken units in one number, and
at index 8, in another cache line, the number of finished units.
"""

from numba import int64, types
from numba.extending import intrinsic

from nmt_cli.runtime.kernels.compiled import OPTIONS, added, njit

SIZE = 16
"""Length of a team's array."""

_TAKEN, _DONE = 0, 8

UNITS = 1 << 24
"""A number in the array is phase x UNITS + taken units."""

PATIENCE = 2_000
"""Turns of a busy loop before a waiting thread offers its core to others. They may need it to finish."""

_give_way = types.ExternalFunction("sched_yield", types.int32())


@intrinsic
def _swapped(context, numbers, index, before, after):
    """Replace `numbers[index]` by `after` if it is `before`, atomically. Return whether it was."""

    def generate(context, builder, signature, arguments):
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        pointer = builder.gep(array.data, [arguments[1]])
        pair = builder.cmpxchg(pointer, arguments[2], arguments[3], "seq_cst", "seq_cst")
        return builder.extract_value(pair, 1)

    return types.boolean(numbers, int64, int64, int64), generate


@njit(**OPTIONS)
def take(team, phase, units):
    """Return one of the `units` (at least 1) units of `phase`. Return -1 once all of them are done."""
    turns = 0
    while True:
        state = added(team, _TAKEN, 0)
        if state // UNITS != phase:
            return -1
        unit = state % UNITS
        if unit < units:
            if _swapped(team, _TAKEN, state, state + 1):
                return unit
            continue
        turns += 1
        if turns % PATIENCE == 0:
            _give_way()


@njit(**OPTIONS)
def next_unit(team, phase, units):
    """Count the unit that this thread has taken as done. Then return the result of `take`."""
    if added(team, _DONE, 1) + 1 == units:
        added(team, _DONE, -units)
        added(team, _TAKEN, UNITS - units)
        return -1
    return take(team, phase, units)
