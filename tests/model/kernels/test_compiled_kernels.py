"""Triton's compiler accepts all kernels for all GPUs, within their limits."""

from typing import Any

import pytest

from tests.launches import compiled_for

pytest.importorskip("triton")
TARGETS = ("sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120", "gfx942")
"""GPUs to compile for. For sm_89, Triton takes the way of sm_86, and the limits are the same."""


@pytest.fixture(scope="module")
def compiled() -> list[dict[str, Any]]:
    """Return all kernels for all targets, compiled by one process."""
    return compiled_for(TARGETS)


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
def test_kernels_of_every_preset_fit_the_gpu(compiled: list[dict[str, Any]], target: str) -> None:
    kernels = [each for each in compiled if each["target"] == target]
    attention = [each for each in kernels if each["kernel"].startswith("attention_")]
    # Three widths of heads: a small tile, often a large one, and blocks. A T4 uses PyTorch's own attention.
    assert len(attention) == (0 if target == "sm_75" else 19) and len(kernels) == len(attention) + 3
    for kernel in kernels:
        assert kernel["shared"] <= kernel["shared limit"], kernel
        assert kernel["stack"] <= kernel["stack limit"], kernel
        assert kernel["registers"] <= (512 if target == "gfx942" else 255), kernel
        if target == "sm_90":
            assert kernel["wide reads"] > 0, kernel
            assert kernel["of 2 bytes"] <= kernel["kernel"].startswith("row_losses"), kernel
