"""Sums of products of bytes are exact, with the processor's instruction for them and without."""

from typing import Any

import numpy as np
import pytest
from numba import njit

from nmt_cli.machine import compiled


@pytest.mark.parametrize("with_instruction", [True, False])
def test_products_of_bytes_are_added_up(with_instruction: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if with_instruction and not compiled.MULTIPLIES_BYTES:
        pytest.skip("this processor has no such instruction")
    monkeypatch.setattr(compiled, "MULTIPLIES_BYTES", with_instruction)
    kernel = njit(_add)
    some = np.random.default_rng(1)
    weights = some.integers(-128, 128, (64, 64), dtype=np.int8)  # inputs, outputs
    inputs, first = some.integers(0, 256, 96, dtype=np.uint8), 32
    inputs[first:][:8], weights[:8] = 255, -128
    laid_out = np.ascontiguousarray(weights.reshape(16, 4, 64).transpose(0, 2, 1))
    sums = some.integers(-(10**6), 10**6, 64, dtype=np.int32)
    wanted = sums + inputs[first:].astype(np.int64) @ weights.astype(np.int64)
    kernel(sums, laid_out.ctypes.data, inputs, first)
    assert np.array_equal(sums, wanted)
    assert not with_instruction or all("vpdpbusd" in code for code in kernel.inspect_asm().values())


ADD: Any = compiled.add_byte_products


def _add(sums: Any, address: Any, inputs: Any, first: Any) -> None:
    ADD(sums, address, inputs, first)
