"""Sums of products, exact for bytes with and without the processor's instruction for them."""

from typing import Any

import numpy as np
import pytest
from numba import njit

from nmt_cli.runtime.kernels import compiled

KERNELS: Any = compiled


@pytest.mark.slow
@pytest.mark.parametrize("rows", [1, 2, 7])
@pytest.mark.parametrize("with_instruction", [True, False])
def test_products_of_bytes_are_exact(with_instruction: bool, rows: int) -> None:
    if with_instruction and not compiled.MULTIPLIES_BYTES:
        pytest.skip("this processor has no such instruction")
    add = KERNELS.add_byte_products if with_instruction else KERNELS._add_single_bytes
    kernel = njit(lambda sums, address, inputs, first: add(sums, address, inputs, first))
    random = np.random.default_rng(1)
    weights = random.integers(-128, 128, (64, 64), dtype=np.int8)  # inputs, outputs
    inputs, first = random.integers(0, 256, (rows, 96), dtype=np.uint8), 32
    inputs[0, first:][:8], weights[:8] = 255, -128
    laid_out = np.ascontiguousarray(weights.reshape(16, 4, 64).transpose(0, 2, 1))
    sums = random.integers(-(10**6), 10**6, (rows, 64), dtype=np.int32)
    expected = sums + inputs[:, first:].astype(np.int64) @ weights.astype(np.int64)
    kernel(sums, laid_out.ctypes.data, inputs, first)
    assert np.array_equal(sums, expected)
    assert not with_instruction or all("vpdpbusd" in code for code in kernel.inspect_asm().values())


@pytest.mark.parametrize("rows", [1, 2, 7])
def test_products_of_rows_that_are_not_adjacent_are_added(rows: int) -> None:
    add = KERNELS.add_products
    kernel = njit(lambda sums, address, inputs, first: add(sums, address, inputs, first))
    random = np.random.default_rng(rows)
    weights, sums = (
        random.standard_normal((16, 64), np.float32),
        random.standard_normal((rows, 64), np.float32),
    )
    inputs, first = random.standard_normal((rows, 50), np.float32)[:, 5:45], 7
    expected = sums + inputs[:, first:][:, :16].astype(np.float64) @ weights.astype(np.float64)
    kernel(sums, weights.ctypes.data, inputs, first)
    assert np.abs(sums - expected).max() < 1e-5
