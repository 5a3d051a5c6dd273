"""The loss by chunks: values, gradients, precision, and the values that are never computed or stored."""

from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from nmt_cli.loss import chunked_loss, plain_loss
from nmt_cli.loss.chunked_loss import CHUNK, cross_entropy
from nmt_cli.loss.row_losses import rows
from nmt_cli.runtime.kernels.torch_private import add_product
from tests.launches import Operations

Batch = tuple[Tensor, Tensor, Tensor]
Made = Callable[..., Batch]
Differentiated = Callable[..., list[Tensor]]

HALVES = [torch.float16, torch.bfloat16]


def errors(actual: list[Tensor], exact: list[Tensor]) -> list[float]:
    return [(a.double() - b).abs().max().item() for a, b in zip(actual, exact, strict=True)]


def distances(actual: list[Tensor], exact: list[Tensor]) -> list[float]:
    return [(a.double() - b).norm().item() for a, b in zip(actual, exact, strict=True)]


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("every", [0, 3, 1], ids=["no filler", "some filler", "only filler"])
@pytest.mark.parametrize("tokens", [0, 1, 3, 4, 5, 10])
def test_chunks_add_up_to_the_reference(
    tokens: int, every: int, smoothing: float, random_batch: Made, differentiated: Differentiated
) -> None:
    batch = random_batch(tokens, 37, 8, torch.float64, every)
    expected = differentiated(plain_loss.cross_entropy, *batch, smoothing=smoothing)
    actual = chunked_loss.walk(*batch, smoothing, None, True, True, rows=rows, chunk=4)
    for a, b in zip(actual, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)


class Noted:
    """Row losses that record the strides of the logits."""

    def __init__(self) -> None:
        self.strides: set[int] = set()

    def __call__(
        self,
        logits_CV: Tensor,
        targets_C: Tensor,
        losses_2C: Tensor,
        smoothing: float,
        grad_scale: Tensor | None,
        gradient: bool,
    ) -> None:
        self.strides.add(logits_CV.stride(0) * logits_CV.element_size())
        assert logits_CV.data_ptr() % 16 == 0
        rows(logits_CV, targets_C, losses_2C, smoothing, grad_scale, gradient)


@pytest.mark.parametrize("entries", [19, 64, 65])
def test_rows_begin_at_multiples_of_the_unit(entries: int, random_batch: Made) -> None:
    batch = random_batch(10, entries, 8, torch.float16)
    noted = Noted()
    aligned = chunked_loss.walk(*batch, 0.1, None, True, True, rows=noted, chunk=4, unit=64)
    plain = chunked_loss.walk(*batch, 0.1, None, True, True, rows=rows, chunk=4)
    assert {stride % 128 for stride in noted.strides} == {0}
    for a, b in zip(aligned, plain, strict=True):
        torch.testing.assert_close(a, b)


def test_the_announced_gradient_itself_needs_no_multiplication(random_batch: Made) -> None:
    x, weight, targets = random_batch(5, 19, 8, torch.float32)
    x.requires_grad_(), weight.requires_grad_()
    scale = torch.tensor(0.25)
    for incoming, products in ((scale, 0), (torch.tensor(0.25), 2)):
        loss = cross_entropy(x, weight, targets, smoothing=0.1, grad_scale=scale).smoothed
        with Operations() as operations:
            loss.backward(incoming)  # type: ignore[no-untyped-call]
        assert operations.names.count("mul") == products


def test_a_gpu_adds_half_precision_products_in_one_operation(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, object]] = []
    monkeypatch.setattr(torch, "addmm", lambda *operands, **options: asked.append(options))
    with FakeTensorMode():
        left, right = (torch.empty(8, 8, dtype=torch.bfloat16, device="cuda") for _ in range(2))
        total = torch.empty(8, 8, device="cuda")
        add_product(total, left, right)
    assert asked == [{"out_dtype": torch.float32, "out": total}]
    assert "ScalarType out_dtype" in str(torch.ops.aten.addmm.dtype_out._schema)


@pytest.mark.parametrize("scale", [None, 3.0, 1024.0])
@pytest.mark.parametrize("tokens", [CHUNK - 1, CHUNK, CHUNK + 1, CHUNK * 5 // 2])
def test_gradients_equal_the_reference_for_any_announced_scale(
    tokens: int, scale: float | None, random_batch: Made, differentiated: Differentiated
) -> None:
    batch = random_batch(tokens, 19, 8, torch.float64, 7)
    grad_scale = None if scale is None else torch.tensor(scale)
    expected = differentiated(plain_loss.cross_entropy, *batch, 7.0, smoothing=0.1)
    actual = differentiated(cross_entropy, *batch, 7.0, smoothing=0.1, grad_scale=grad_scale)
    for a, b in zip(actual, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, *HALVES], ids=str)
@pytest.mark.parametrize("spread", [0.1, 1.0, 5.0])
def test_the_chunked_loss_has_at_most_twice_the_error_of_plain_pytorch(
    spread: float, dtype: torch.dtype, random_batch: Made, differentiated: Differentiated
) -> None:
    x, weight, targets = random_batch(CHUNK + 100, 501, 16, dtype, 5)
    batch = x * spread, weight, targets
    exact = differentiated(
        plain_loss.cross_entropy, batch[0].double(), weight.double(), targets, smoothing=0.1
    )
    with torch.autocast("cpu", dtype=dtype, enabled=dtype in HALVES):
        plain = differentiated(plain_loss.cross_entropy, *batch, smoothing=0.1)
        ours = differentiated(cross_entropy, *batch, smoothing=0.1)
    assert [tensor.dtype for tensor in ours] == [torch.float32, torch.float32, dtype, torch.float32]
    tiny = [torch.finfo(torch.float32).eps * tensor.abs().max().item() for tensor in exact]
    for err, allowed, tolerance in zip(errors(ours, exact), errors(plain, exact), tiny, strict=True):
        assert err <= 2 * allowed + tolerance


def test_huge_logits_give_finite_losses() -> None:
    x, weight = torch.tensor([[1e4]], requires_grad=True), torch.tensor([[1.0], [-1.0]])
    smoothed, nll = cross_entropy(x, weight, torch.tensor([1]), smoothing=0.0)
    assert (smoothed.item(), nll.item()) == (2e4, 2e4)
    smoothed.backward()  # type: ignore[no-untyped-call]
    assert x.grad is not None and x.grad.item() == 2.0


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16], ids=str)
def test_autocast_does_not_change_the_loss(
    dtype: torch.dtype, random_batch: Made, differentiated: Differentiated
) -> None:
    batch = random_batch(20, 37, 8, dtype)
    plain = differentiated(cross_entropy, *batch, smoothing=0.1)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        ours = differentiated(cross_entropy, *batch, smoothing=0.1)
    assert all(a.equal(b) for a, b in zip(ours, plain, strict=True))


def test_scaled_fp16_gradients_have_no_larger_error_than_plain_ones(
    random_batch: Made, differentiated: Differentiated
) -> None:
    batch, scale = random_batch(CHUNK + 100, 501, 16, torch.float16), 2.0**10 / 600
    exact = differentiated(
        plain_loss.cross_entropy, batch[0].double(), batch[1].double(), batch[2], scale, smoothing=0.1
    )
    plain = differentiated(plain_loss.cross_entropy, *batch, scale, smoothing=0.1)
    ours = differentiated(cross_entropy, *batch, scale, smoothing=0.1, grad_scale=torch.tensor(scale))
    for err, allowed in zip(distances(ours[2:], exact[2:]), distances(plain[2:], exact[2:]), strict=True):
        assert err <= 1.05 * allowed  # each chunk is rounded, so errors differ slightly


def test_small_gradients_do_not_become_0_in_fp16_if_the_scale_is_announced(
    differentiated: Differentiated,
) -> None:
    x, weight = torch.ones(1, 1, dtype=torch.float16), torch.full((8, 1), -20.0)
    weight[0] = 0.0
    batch, scale = (x, weight, torch.tensor([0])), 2.0**16
    *_, exact = differentiated(
        plain_loss.cross_entropy, x.double(), weight.double(), batch[2], scale, smoothing=0.0
    )
    *_, blind = differentiated(cross_entropy, *batch, scale, smoothing=0.0)
    options = {"grad_scale": torch.tensor(scale)}
    *_, ours = differentiated(cross_entropy, *batch, scale, smoothing=0.0, **options)
    assert blind.count_nonzero() == 0
    other_entries = slice(1, None)  # the target's gradient is 0 already in fp32, as its probability is 1
    torch.testing.assert_close(ours[other_entries].double(), exact[other_entries], rtol=1e-3, atol=0)


@pytest.mark.parametrize(
    ("x_required", "weight_required", "saved"),
    [(True, True, [24, 56]), (True, False, [24, 0]), (False, True, [0, 56]), (False, False, [])],
)
def test_only_required_gradients_are_saved(
    x_required: bool, weight_required: bool, saved: list[int], random_batch: Made
) -> None:
    x, weight, targets = random_batch(3, 7, 8, torch.float32)
    x.requires_grad_(x_required), weight.requires_grad_(weight_required)
    saved_tensors: list[Tensor] = []

    def keep(tensor: Tensor) -> Tensor:
        saved_tensors.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, keep):
        cross_entropy(x, weight, targets, smoothing=0.1)
    assert [tensor.numel() for tensor in saved_tensors] == saved


def test_without_gradients_nothing_is_saved(random_batch: Made) -> None:
    x, weight, targets = random_batch(3, 7, 8, torch.float32)
    x.requires_grad_(), weight.requires_grad_()
    with torch.no_grad(), Operations() as operations:
        losses = cross_entropy(x, weight, targets, smoothing=0.1)
    assert not losses.smoothed.requires_grad
    assert operations.largest == 1
    with Operations() as operations:
        chunked_loss.walk(x.detach(), weight.detach(), targets, 0.1, None, False, False, rows=rows, chunk=4)
    assert operations.names.count("mm") == 1
    assert operations.names.count("scatter_add_") == 0


@pytest.mark.parametrize(
    ("required", "products"), [((True, False), 2), ((False, True), 2), ((True, True), 3)]
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
def test_a_gradient_that_is_not_required_is_not_computed(
    dtype: torch.dtype, required: tuple[bool, bool], products: int, random_batch: Made
) -> None:
    batch = random_batch(3, 7, 8, dtype)
    with Operations() as operations:
        chunked_loss.walk(*batch, 0.1, None, *required, rows=rows, chunk=4)
    assert sum(name in ("mm", "addmm_") for name in operations.names) == products


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
def test_no_tensor_is_larger_than_the_logits_of_a_chunk(dtype: torch.dtype, random_batch: Made) -> None:
    with Operations() as operations:
        batch = random_batch(300, 500, 8, dtype, 3)
        chunked_loss.walk(*batch, 0.1, torch.tensor(2.0), True, True, rows=rows, chunk=32)
    assert operations.largest == 32 * 500


@pytest.mark.slow
@pytest.mark.parametrize("required", [(True, True), (True, False), (False, True), (False, False)])
@pytest.mark.parametrize("scale", [None, torch.tensor(2.0)], ids=["no scale", "scale"])
def test_the_operator_passes_pytorchs_check(
    scale: Tensor | None, required: tuple[bool, bool], random_batch: Made
) -> None:
    x, weight, targets = random_batch(5, 7, 4, torch.float64, 3)
    x.requires_grad_(required[0]), weight.requires_grad_(required[1])
    torch.library.opcheck(chunked_loss.losses_and_gradients, (x, weight, targets, 0.1, 0.0, scale, *required))


def test_features_may_be_strided_and_weights_of_half_precision(
    random_batch: Made, differentiated: Differentiated
) -> None:
    x, weight, targets = random_batch(5, 7, 8, torch.bfloat16)
    batch = x.T.contiguous().T, weight.bfloat16(), targets
    contiguous = differentiated(partial(cross_entropy, smoothing=0.1), x, *batch[1:])
    ours = differentiated(partial(cross_entropy, smoothing=0.1), *batch)
    assert [tensor.dtype for tensor in ours] == [torch.float32, torch.float32, torch.bfloat16, torch.bfloat16]
    for a, b in zip(ours, contiguous, strict=True):
        torch.testing.assert_close(a, b)
    torch.library.opcheck(chunked_loss.losses_and_gradients, (*batch, 0.1, 0.0, None, True, True))
