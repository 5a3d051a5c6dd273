"""The compiled kernel of the row losses, compared with float64."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from nmt_cli.loss.row_losses import plain_rows, rows
from nmt_cli.runtime.kernels.loading import compiled_kernels

TYPES = [torch.float32, torch.bfloat16]


def both(
    logits: Tensor, targets: Tensor, smoothing: float, scale: Tensor | None, gradient: bool = True
) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """Return gradients and losses, by the kernel and by PyTorch in float64."""
    exact, ours = logits.double(), logits.clone()
    losses = torch.zeros(2, len(targets)), torch.zeros(2, len(targets), dtype=torch.float64)
    rows(ours, targets, losses[0], smoothing, scale, gradient)
    plain_rows(exact, targets, losses[1], smoothing, scale, gradient)
    return (ours, losses[0]), (exact, losses[1])


def test_the_compiled_kernel_is_available() -> None:
    assert compiled_kernels("loss.cpu_row_losses"), "the tests need Numba"


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 1 << 30),
    tokens=st.integers(0, 9),
    entries=st.integers(1, 70),
    spread=st.sampled_from([0.0, 1.0, 30.0]),
    smoothing=st.sampled_from([0.0, 0.1, 0.9]),
    scale=st.sampled_from([None, 1 / 77, 1024.0]),
    dtype=st.sampled_from(TYPES),
    gradient=st.booleans(),
)
def test_rows_equal_rounded_rows_of_float64(
    seed: int,
    tokens: int,
    entries: int,
    spread: float,
    smoothing: float,
    scale: float | None,
    dtype: torch.dtype,
    gradient: bool,
) -> None:
    random = torch.Generator().manual_seed(seed)
    logits = (torch.randn(tokens, entries, generator=random) * spread).to(dtype)
    targets = torch.randint(-1, entries, (tokens,), generator=random, dtype=torch.int32)
    scale_tensor = None if scale is None else torch.tensor(scale)
    (ours, losses), (exact, expected) = both(logits, targets, smoothing, scale_tensor, gradient)
    torch.testing.assert_close(losses.double(), expected, rtol=1e-5, atol=1e-5)
    if gradient:
        tolerance = (scale or 1.0) * 2e-6
        torch.testing.assert_close(
            ours.double(),
            exact,
            rtol=torch.finfo(dtype).eps if dtype != torch.float32 else 1e-5,
            atol=tolerance,
        )


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("bad", [float("nan"), -float("nan"), float("inf")])
def test_a_row_that_is_not_finite_has_no_finite_loss_and_affects_no_other(
    bad: float, dtype: torch.dtype
) -> None:
    logits = torch.randn(3, 40).to(dtype)
    logits[1, 7] = bad
    (ours, losses), (exact, expected) = both(logits, torch.tensor([1, 2, 3]), 0.1, None)
    assert not losses[:, 1].isfinite().any()
    assert ours[1].isnan().any()
    torch.testing.assert_close(losses[:, [0, 2]].double(), expected[:, [0, 2]], rtol=1e-5, atol=1e-5)
    assert ours[[0, 2]].isfinite().all() and exact[[0, 2]].isfinite().all()


@pytest.mark.parametrize("threads", [1, 3])
def test_the_number_of_threads_changes_no_bit(threads: int) -> None:
    logits, targets = torch.randn(50, 100), torch.randint(0, 100, (50,))
    before = torch.get_num_threads()
    actual = []
    for count in (2, threads):
        torch.set_num_threads(count)
        try:
            actual.append(both(logits, targets, 0.1, None)[0])
        finally:
            torch.set_num_threads(before)
    assert all(a.equal(b) for a, b in zip(*actual, strict=True))
