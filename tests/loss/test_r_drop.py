"""The loss of R-Drop, against its definition in NumPy and by chunks."""

from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Tensor

from nmt_cli.loss import plain_loss
from nmt_cli.loss.chunked_loss import cross_entropy
from nmt_cli.loss.r_drop import r_drop_rows
from nmt_cli.loss.row_losses import plain_rows
from nmt_cli.runtime.kernels.loading import compiled_kernels

Batch = tuple[Tensor, Tensor, Tensor]


def two_draws(batch: Batch) -> Batch:
    """Return a batch whose second half has other features and the targets of the first half."""
    x, weight, targets = batch
    half = len(x) // 2
    return x[: 2 * half], weight, targets[:half].repeat(2)


def softmax(logits_TV: NDArray[np.float64]) -> NDArray[np.float64]:
    exponentials: NDArray[np.float64] = np.exp(logits_TV)
    p_TV: NDArray[np.float64] = exponentials / exponentials.sum(1, keepdims=True)
    return p_TV


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("every", [0, 3])
def test_the_loss_is_half_of_that_of_the_paper(
    every: int, dtype: torch.dtype, random_batch: Callable[..., Batch]
) -> None:
    x, weight, targets = two_draws(random_batch(1400, 90, 8, dtype, every))
    ours = cross_entropy(x, weight, targets, smoothing=0.1, r_drop=4.0)
    counts = targets.chunk(2)[0].numpy() >= 0
    p, q = (softmax((half.double() @ weight.double().T).numpy())[counts] for half in x.chunk(2))
    labels = targets.chunk(2)[0].numpy()[counts]
    smooth = np.full(p.shape, 0.1 / p.shape[1])
    smooth[np.arange(len(labels)), labels] += 0.9
    of_the_paper = -(smooth * (np.log(p) + np.log(q))).sum()
    of_the_paper += 4.0 * ((p * np.log(p / q)).sum() + (q * np.log(q / p)).sum()) / 2
    nll = -(np.log(p) + np.log(q))[np.arange(len(labels)), labels].sum() / 2
    assert ours.smoothed.item() == pytest.approx(of_the_paper / 2, rel=1e-6)
    assert ours.nll.item() == pytest.approx(nll, rel=1e-6)


def by_definition(
    x_TD: Tensor, weight_VD: Tensor, targets_T: Tensor, smoothing: float, r_drop: float
) -> tuple[Tensor, Tensor]:
    both = plain_loss.cross_entropy(x_TD, weight_VD, targets_T, smoothing=smoothing)
    log_p, log_q = (half @ weight_VD.T for half in x_TD.chunk(2))
    log_p, log_q = log_p.log_softmax(1), log_q.log_softmax(1)
    counts = targets_T.chunk(2)[0] >= 0
    divergence = ((log_p.exp() - log_q.exp()) * (log_p - log_q))[counts].sum()
    return both.smoothed / 2 + r_drop / 4 * divergence, both.nll / 2


@pytest.mark.parametrize("scale", [None, 1 / 77])
@pytest.mark.parametrize("every", [0, 3, 1], ids=["no filler", "some filler", "only filler"])
@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 1e-5), (torch.bfloat16, 0.03)], ids=str
)
def test_the_gradients_are_those_of_float64_autograd(
    dtype: torch.dtype,
    tolerance: float,
    every: int,
    scale: float | None,
    random_batch: Callable[..., Batch],
    differentiated: Callable[..., list[Tensor]],
) -> None:
    x, weight, targets = two_draws(random_batch(1100, 37, 8, dtype, every))
    grad_scale = None if scale is None else torch.tensor(scale, dtype=torch.float64)
    options = {"smoothing": 0.1, "r_drop": 3.0}
    ours = differentiated(cross_entropy, x, weight, targets, grad_scale=grad_scale, **options)
    exact = differentiated(by_definition, x.double(), weight.double(), targets, **options)
    for a, b in zip(ours, exact, strict=True):
        assert (a.double() - b).norm() <= tolerance * b.norm()


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 1 << 30),
    count=st.integers(0, 5),
    entries=st.integers(1, 70),
    spread=st.sampled_from([0.0, 1.0, 30.0]),
    dtype=st.sampled_from([torch.float32, torch.bfloat16]),
)
def test_compiled_rows_equal_rounded_rows_of_float64(
    seed: int, count: int, entries: int, spread: float, dtype: torch.dtype
) -> None:
    assert compiled_kernels("loss.cpu_r_drop"), "the tests need Numba"
    random = torch.Generator().manual_seed(seed)
    logits = (torch.randn(2 * count, entries, generator=random) * spread).to(dtype)
    targets = torch.randint(-1, entries, (count,), generator=random).repeat_interleave(2)
    exact = logits.double()
    losses, expected = torch.zeros(2, 2 * count), torch.zeros(2, 2 * count, dtype=torch.float64)
    row_losses = partial(r_drop_rows, rows=plain_rows, r_drop=2.0)
    row_losses(logits, targets, losses, 0.1, None, True)
    row_losses(exact, targets, expected, 0.1, None, True)
    torch.testing.assert_close(losses.double(), expected, rtol=1e-4, atol=1e-4)
    tolerance = 1e-5 if dtype == torch.float32 else torch.finfo(dtype).eps
    torch.testing.assert_close(logits.double(), exact, rtol=tolerance, atol=1e-4)


def test_equal_draws_have_the_loss_without_r_drop(random_batch: Callable[..., Batch]) -> None:
    x, weight, targets = random_batch(20, 7, 4, torch.float64)
    single = cross_entropy(x, weight, targets, smoothing=0.1)
    both = cross_entropy(x.repeat(2, 1), weight, targets.repeat(2), smoothing=0.1, r_drop=5.0)
    torch.testing.assert_close(both, single)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_row_that_is_not_finite_has_no_finite_loss_and_affects_no_other(bad: float) -> None:
    logits = torch.randn(6, 40)
    expected = logits.clone()
    logits[3, 7] = bad
    targets, row_losses = torch.tensor([1, 1, 2, 2, 3, 3]), partial(r_drop_rows, rows=plain_rows, r_drop=2.0)
    losses, finite = torch.zeros(2, 6), torch.zeros(2, 6)
    row_losses(logits, targets, losses, 0.1, None, True)
    row_losses(expected, targets, finite, 0.1, None, True)
    assert not losses[0, 3].isfinite()
    assert torch.equal(losses[:, [0, 1, 4, 5]], finite[:, [0, 1, 4, 5]])
    assert torch.equal(logits[[0, 1, 4, 5]], expected[[0, 1, 4, 5]])


def test_a_target_outside_of_the_vocabulary_is_an_error(random_batch: Callable[..., Batch]) -> None:
    x, weight, targets = two_draws(random_batch(6, 7, 4, torch.float32))
    targets[3] = 7
    with pytest.raises(RuntimeError, match="out of bounds"):
        cross_entropy(x, weight, targets, smoothing=0.1, r_drop=1.0)
