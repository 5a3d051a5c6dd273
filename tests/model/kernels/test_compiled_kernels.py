"""Triton's compiler accepts all kernels for all GPUs, within their limits."""

import pytest

from tests.launches import printed_by

pytest.importorskip("triton")
pytestmark = pytest.mark.slow

TARGETS = ("sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120", "gfx942")
"""GPUs to compile for. For sm_89, Triton takes the way of sm_86, and the limits are the same."""


def check(target: str, attention: int, *options: str) -> None:
    """Compile the kernels for a target and check their limits. `attention` is the number of its kernels."""
    kernels = printed_by("tests.compile_kernels", *options, target)
    assert sum(each["kernel"].startswith("attention_") for each in kernels) == attention
    assert len(kernels) == attention + 3
    for kernel in kernels:
        assert kernel["shared"] <= kernel["shared limit"], kernel
        assert kernel["stack"] <= kernel["stack limit"], kernel
        assert kernel["registers"] <= (512 if target == "gfx942" else 255), kernel
        if target == "sm_90":
            assert kernel["wide reads"] > 0, kernel
            assert kernel["of 2 bytes"] <= kernel["kernel"].startswith("row_losses"), kernel


@pytest.mark.parametrize(("target", "attention"), [("sm_75", 0), ("sm_90", 7), ("gfx942", 7)])
def test_kernels_of_the_paper_fit_a_gpu_of_each_kind(target: str, attention: int) -> None:
    # A small tile, a large one, and blocks. A T4 has no tensor cores, and uses PyTorch's own attention.
    check(target, attention, "--width", "64")


@pytest.mark.release
@pytest.mark.parametrize("target", TARGETS)
def test_kernels_of_every_preset_fit_the_gpu(target: str) -> None:
    # Three widths of heads, of which the widest has no large tile.
    check(target, 0 if target == "sm_75" else 19)


def test_the_first_steps_of_training_compile_no_kernel_that_was_not_tried() -> None:
    for found in printed_by("tests.record_kernels"):
        assert found["tried"] > 10 and found["new"] == [], found
