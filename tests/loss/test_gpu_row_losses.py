"""The Triton kernel of the row losses, on a GPU or in Triton's interpreter, and the whole loss on a GPU."""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from nmt_cli.loss import chunked_loss, plain_loss
from nmt_cli.loss.chunked_loss import cross_entropy
from nmt_cli.loss.row_losses import RowLosses, plain_rows, rows
from nmt_cli.runtime.kernels import families

pytest.importorskip("triton")
from nmt_cli.loss import gpu_row_losses

Made = Callable[..., tuple[Tensor, Tensor, Tensor]]
Differentiated = Callable[..., list[Tensor]]

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
GPU = (pytest.mark.gpu, pytest.mark.skipif(DEVICE == "cpu", reason="needs a CUDA device"))
DTYPES = [torch.float32, torch.float16, pytest.param(torch.bfloat16, marks=GPU)]


def rows_of(
    rows: RowLosses, logits: Tensor, targets: Tensor, smoothing: float, scale: float | None
) -> list[Tensor]:
    """Return the losses, and the logits after they were overwritten."""
    logits, losses = (
        logits.clone(),
        logits.new_empty(2, len(logits), dtype=chunked_loss._at_least_fp32(logits.dtype)),
    )
    rows(
        logits,
        targets,
        losses,
        smoothing,
        None if scale is None else torch.tensor(scale).to(logits.device),
        True,
    )
    return [losses, logits]


def random_logits(entries: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    draw = torch.Generator().manual_seed(entries)
    targets = torch.randint(entries, (5,), generator=draw)
    targets[2] = -1
    return (torch.randn(5, entries, generator=draw) * 4).to(DEVICE, dtype), targets.to(DEVICE)


@pytest.mark.parametrize("scale", [None, 3.0])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("entries", [1, 7, 63, 64, 65, 128, 300])
def test_float64_rows_equal_those_of_pytorch(
    entries: int, smoothing: float, scale: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu_row_losses, "MAX_BLOCK", 64)
    batch = random_logits(entries, torch.float64)
    expected = rows_of(plain_rows, *batch, smoothing, scale)
    for a, b in zip(rows_of(gpu_row_losses.rows, *batch, smoothing, scale), expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("entries", [63, 300])
def test_rows_have_at_most_twice_the_error_of_pytorch(
    entries: int, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu_row_losses, "MAX_BLOCK", 64)
    logits, targets = random_logits(entries, dtype)
    exact = rows_of(plain_rows, logits.double(), targets, 0.1, 5.0)
    plain = rows_of(plain_rows, logits, targets, 0.1, 5.0)
    ours = rows_of(gpu_row_losses.rows, logits, targets, 0.1, 5.0)
    for a, b, e in zip(ours, plain, exact, strict=True):
        tolerance = torch.finfo(torch.float32).eps * e.abs().max()
        assert (a.double() - e).abs().max() <= 2 * (b.double() - e).abs().max() + tolerance


def test_huge_logits_give_finite_losses_and_gradients() -> None:
    logits = torch.tensor([[1e4, -1e4, 1e4]], device=DEVICE)
    losses, gradient = rows_of(gpu_row_losses.rows, logits, torch.tensor([1], device=DEVICE), 0.0, None)
    assert losses.flatten().tolist() == pytest.approx([2e4 + math.log(2)] * 2, rel=1e-7)
    assert gradient.tolist() == [[0.5, -1.0, 0.5]]


@pytest.mark.parametrize("target", [-2, 7])
def test_a_target_outside_of_the_vocabulary_makes_its_loss_nan(target: int) -> None:
    logits, targets = random_logits(7, torch.float32)
    targets[1] = target
    losses, _ = rows_of(gpu_row_losses.rows, logits, targets, 0.1, None)
    assert losses.isnan().tolist() == [[False, True, False, False, False]] * 2


def test_without_a_gradient_the_logits_are_unchanged() -> None:
    logits, targets = random_logits(7, torch.float32)
    before, losses = logits.clone(), logits.new_empty(2, 5)
    gpu_row_losses.rows(logits, targets, losses, 0.1, None, False)
    assert logits.equal(before)
    assert losses.equal(rows_of(gpu_row_losses.rows, logits, targets, 0.1, None)[0])


def test_chunks_with_the_fused_kernel_equal_the_reference(
    random_batch: Made, differentiated: Differentiated
) -> None:
    batch = [tensor.to(DEVICE) for tensor in random_batch(10, 37, 8, torch.float64, 3)]
    expected = differentiated(plain_loss.cross_entropy, *batch, smoothing=0.1)
    x, weight, targets = batch
    actual = chunked_loss.walk(x, weight, targets, 0.1, None, True, True, rows=gpu_row_losses.rows, chunk=4)
    for a, b in zip(actual, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)


def test_a_gpu_uses_the_kernel_unless_it_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = torch.device("cuda")
    assert chunked_loss._implementation(gpu) == (
        gpu_row_losses.rows,
        chunked_loss.CHUNK_ON_GPU,
        gpu_row_losses.UNIT,
    )
    assert chunked_loss._implementation(torch.device("cpu")) == (rows, chunked_loss.CHUNK, 1)
    monkeypatch.setattr(families, "refused", {"loss"})
    assert chunked_loss._implementation(gpu) == (plain_rows, chunked_loss.CHUNK_ON_GPU, 1)


@pytest.mark.gpu
@pytest.mark.skipif(DEVICE == "cpu", reason="needs a CUDA device")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_on_a_gpu_the_loss_has_at_most_twice_the_error_of_plain_pytorch(
    dtype: torch.dtype, random_batch: Made, differentiated: Differentiated
) -> None:
    x, weight, targets = (t.cuda() for t in random_batch(chunked_loss.CHUNK_ON_GPU + 100, 5003, 64, dtype, 5))
    exact = differentiated(plain_loss.cross_entropy, x.double(), weight.double(), targets, smoothing=0.1)
    plain = differentiated(plain_loss.cross_entropy, x, weight, targets, smoothing=0.1)
    runs = [differentiated(cross_entropy, x, weight, targets, smoothing=0.1) for _ in range(20)]
    for a, b, e in zip(runs[0], plain, exact, strict=True):
        tolerance = torch.finfo(torch.float32).eps * e.abs().max()
        assert (a - e).abs().max() <= 2 * (b - e).abs().max() + tolerance
    assert all(a.equal(b) for run in runs[1:] for a, b in zip(run, runs[0], strict=True))


@pytest.mark.gpu
@pytest.mark.skipif(DEVICE == "cpu", reason="needs a CUDA device")
def test_on_a_gpu_nothing_waits_for_the_device(random_batch: Made, differentiated: Differentiated) -> None:
    x, weight, targets = (t.cuda() for t in random_batch(100, 503, 64, torch.bfloat16, 5))
    scale = torch.tensor(3.0, device="cuda")
    differentiated(cross_entropy, x, weight, targets, smoothing=0.1, grad_scale=scale)
    torch.cuda.set_sync_debug_mode("error")
    try:
        differentiated(cross_entropy, x, weight, targets, smoothing=0.1, grad_scale=scale)
    finally:
        torch.cuda.set_sync_debug_mode("default")
