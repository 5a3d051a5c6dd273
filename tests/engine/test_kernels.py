"""Products with packed matrices, and the team of threads."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from numba import njit

from nmt_cli.engine.kernels import products, team
from nmt_cli.engine.packing import laid_out

BLOCK = products.BLOCK
KERNELS: Any = products
TEAM: Any = team

add_floats, add_bytes, take, next_unit = (
    KERNELS.add_floats,
    KERNELS.add_bytes,
    TEAM.take,
    TEAM.next_unit,
)


@njit(nogil=True)
def multiply_floats(rows, weights, x, inputs, sums):  # type: ignore[no-untyped-def]
    add_floats(rows, weights, x, 4 * (inputs + 3), inputs, sums)


@njit(nogil=True)
def multiply_bytes(rows, weights, x, inputs, sums):  # type: ignore[no-untyped-def]
    add_bytes(rows, weights, x, inputs + 8, inputs, sums)


@pytest.mark.parametrize("rows", [1, 2, 3, 4, 5, 7, 11])
@pytest.mark.parametrize(("inputs", "outputs"), [(1, 1), (7, 70), (64, 64), (513, 130), (1030, 3)])
def test_products_of_floats_are_added(rows: int, inputs: int, outputs: int) -> None:
    random = np.random.default_rng(rows)
    matrix = random.standard_normal((outputs, inputs), np.float32)
    x = random.standard_normal((rows, inputs + 3), np.float32)  # rows are not adjacent
    begin = random.standard_normal((rows, BLOCK), np.float32)
    for number, block in enumerate(laid_out(matrix)):
        sums, own = begin.copy(), matrix[number * BLOCK : (number + 1) * BLOCK].astype(np.float64)
        multiply_floats(rows, block.ctypes.data, x.ctypes.data, inputs, sums.ctypes.data)
        expected = begin[:, : len(own)] + x[:, :inputs].astype(np.float64) @ own.T
        np.testing.assert_allclose(sums[:, : len(own)], expected, rtol=0, atol=2e-6 * inputs**0.5 * 10)
        assert np.array_equal(sums[:, len(own) :], begin[:, len(own) :])


@pytest.mark.parametrize("rows", [1, 2, 3, 4, 5, 7, 11])
@pytest.mark.parametrize(("inputs", "outputs"), [(1, 1), (7, 70), (64, 64), (513, 130), (4100, 3)])
def test_products_of_bytes_are_exact(rows: int, inputs: int, outputs: int) -> None:
    """Also those of the largest bytes, whose sums of pairs do not fit into 16 bits without care."""
    random = np.random.default_rng(rows)
    matrix = random.integers(-127, 128, (outputs, inputs), np.int8)
    wide = inputs + -inputs % 4
    x = np.full((rows, wide + 8), products.OFFSET, np.uint8)
    signed = random.integers(-127, 128, (rows, inputs))
    matrix[0], signed[0] = 127, -127
    x[:, :inputs] = signed + products.OFFSET  # without an offset, a byte is read as signed
    begin = random.integers(-(10**6), 10**6, (rows, BLOCK), np.int32)
    for number, block in enumerate(laid_out(matrix)):
        sums, own = begin.copy(), matrix[number * BLOCK : (number + 1) * BLOCK].astype(np.int64)
        multiply_bytes(rows, block.ctypes.data, x.ctypes.data, wide, sums.ctypes.data)
        expected = begin[:, : len(own)] + (signed + products.OFFSET) @ own.T
        assert np.array_equal(sums[:, : len(own)], expected)


@njit(nogil=True)
def double_all(team, values):  # type: ignore[no-untyped-def]
    """Double all values, in as many phases as there are rows. Each phase needs the one before."""
    for phase in range(len(values)):
        unit = take(team, phase, values.shape[1])
        while unit >= 0:
            before = values[phase - 1, values.shape[1] - 1 - unit] if phase else 1
            values[phase, unit] += 2 * before
            unit = next_unit(team, phase, values.shape[1])


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("units", [1, 2, 50])
def test_each_unit_is_done_once_and_after_the_phase_before(threads: int, units: int) -> None:
    values, whole = np.zeros((40, units)), np.zeros(team.SIZE, np.int64)
    with ThreadPoolExecutor(threads) as pool:
        for one in [pool.submit(double_all, whole, values) for _ in range(threads)]:
            one.result()
    assert np.array_equal(values, np.repeat(2.0 ** np.arange(1, 41)[:, None], units, axis=1))


def test_a_thread_that_starts_late_changes_nothing() -> None:
    values, whole = np.zeros((5, 7)), np.zeros(team.SIZE, np.int64)
    double_all(whole, values)
    before = values.copy()
    double_all(whole, values)
    assert np.array_equal(values, before)


def test_after_the_last_phase_nothing_is_taken() -> None:
    units, whole = 2 * BLOCK, np.zeros(team.SIZE, np.int64)
    values = np.zeros((1000, units))
    double_all(whole, values[:, :])
    assert whole[0] == 1000 * team.UNITS and whole[8] == 0
