"""The Triton kernels of ReLU projections, on a GPU or in Triton's interpreter."""

from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor

from nmt_cli.model.pointwise import plain_relu_and_dropout

pytest.importorskip("triton")
from nmt_cli.model.pointwise import gpu_relu_and_dropout

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
DTYPES = [torch.float32, torch.float16, torch.bfloat16]
SHAPES = [(1, 1), (1, 300), (15, 8), (16, 256), (300, 40), (129, 257), (0, 8)]


def drawn(*shape: int, dtype: torch.dtype, device: str, seed: int = 1) -> Tensor:
    draw = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=draw, dtype=torch.float64).to(device, dtype)


def assert_at_most_twice_the_error(
    compute: Callable[..., Tensor],
    plain: Callable[..., Tensor],
    inputs: Sequence[Tensor],
    d_out: Tensor,
) -> None:
    """Compare errors of `compute` with those of `plain`, in the output and the gradients of `inputs`.

    Up to twice the error is allowed, plus 1e-5 of the largest number, since `plain` may be lucky in fp32.
    """

    def differentiated(function: Callable[..., Tensor], exact: bool = False) -> list[Tensor]:
        leaves = [(x.double() if exact else x).detach().requires_grad_() for x in inputs]
        out = function(*leaves)
        return [out.detach(), *torch.autograd.grad(out, leaves, d_out.to(out.dtype))]

    results = differentiated(plain, exact=True), differentiated(plain), differentiated(compute)
    for exact, theirs, ours in zip(*results, strict=True):
        assert ours.dtype == theirs.dtype and ours.shape == theirs.shape
        assert (ours - exact).abs().max() <= 2 * (theirs - exact).abs().max() + 1e-5 * exact.abs().max()


@pytest.mark.parametrize("dtype", [*DTYPES, torch.float64], ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_the_mask_of_a_relu_and_the_sum_of_its_gradient_are_those_of_pytorch(
    shape: tuple[int, int], dtype: torch.dtype, device: str
) -> None:
    d_out = drawn(*shape, dtype=dtype, device=device)
    out = drawn(*shape, dtype=dtype, device=device, seed=2).relu()
    d_in, d_bias = gpu_relu_and_dropout.relu_backward(d_out, out)
    expected, exact = (
        plain_relu_and_dropout.relu_backward(d_out, out)[0],
        plain_relu_and_dropout.relu_backward(d_out.double(), out)[1],
    )
    assert d_in.dtype == dtype and torch.equal(d_in, expected)
    assert d_bias.dtype == torch.promote_types(dtype, torch.float32)
    largest = float(d_out.abs().sum(0).max()) if len(d_out) else 0.0
    assert float((d_bias - exact).abs().max()) <= 4 * torch.finfo(d_bias.dtype).eps * largest


def test_a_gradient_may_be_a_view(device: str) -> None:
    out = drawn(40, 24, dtype=torch.float32, device=device).relu()
    wide = drawn(40, 48, dtype=torch.float32, device=device)
    for d_out in (wide[:, 24:], wide[:, ::2], wide[:1, :24].expand(40, 24)):
        contiguous = gpu_relu_and_dropout.relu_backward(d_out.contiguous(), out)
        assert all(map(torch.equal, gpu_relu_and_dropout.relu_backward(d_out, out), contiguous))


def test_a_gradient_passes_if_the_output_is_nan(device: str) -> None:
    out = torch.tensor([[float("nan"), 0.0, 2.0, -0.0]], device=device)
    actual, _ = gpu_relu_and_dropout.relu_backward(torch.full_like(out, 3.0), out)
    assert actual.tolist() == torch.ops.aten.threshold_backward(torch.full_like(out, 3.0), out, 0).tolist()
    assert actual.tolist() == [[3.0, 0.0, 3.0, 0.0]]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_relu_projection_has_at_most_twice_the_error_of_plain_pytorch(
    dtype: torch.dtype, device: str
) -> None:
    shapes = ((150, 24), (40, 24), (40,), (150, 40))
    x, weight, bias, d_out = (
        drawn(*tensor, dtype=dtype, device=device, seed=len(tensor)) for tensor in shapes
    )
    inputs = (x, weight, bias)
    assert_at_most_twice_the_error(
        gpu_relu_and_dropout.relu_linear, plain_relu_and_dropout.relu_linear, inputs, d_out
    )


def test_an_fp32_bias_has_an_fp32_gradient_also_with_half_precision_factors(device: str) -> None:
    x, weight = (drawn(300, width, dtype=torch.float16, device=device) for width in (16, 16))
    bias = torch.zeros(300, device=device, requires_grad=True)
    out = gpu_relu_and_dropout.relu_linear(x, weight, bias)
    assert out.dtype == torch.float16
    d_out = drawn(300, 300, dtype=torch.float16, device=device, seed=3)
    (actual,) = torch.autograd.grad(out, bias, d_out)
    expected = (d_out.double() * (out > 0)).sum(0)
    assert actual.dtype == torch.float32
    assert float((actual - expected).abs().max()) < 1e-4  # the error in half precision is 1e-2


def test_inputs_without_gradients_are_not_differentiated(device: str) -> None:
    x, weight = (drawn(20, 16, dtype=torch.float32, device=device) for _ in range(2))
    bias = torch.zeros(20, device=device, requires_grad=True)
    (actual,) = torch.autograd.grad(gpu_relu_and_dropout.relu_linear(x, weight, bias).sum(), bias)
    expected = torch.autograd.grad(plain_relu_and_dropout.relu_linear(x, weight, bias).sum(), bias)[0]
    assert torch.equal(actual, expected)
    with torch.no_grad():
        assert torch.equal(
            gpu_relu_and_dropout.relu_linear(x, weight, bias),
            plain_relu_and_dropout.relu_linear(x, weight, bias),
        )


def test_the_operators_pass_pytorchs_check_of_custom_operators(device: str) -> None:
    # Without gradients, which are those of the autograd function around the operator.
    x, weight = (drawn(20, 16, dtype=torch.float32, device=device) for _ in range(2))
    bias = torch.zeros(20, device=device)
    torch.library.opcheck(torch.ops.nmt.relu_linear, (x, weight, bias))
    out = torch.ops.nmt.relu_linear(x, weight, bias)
    torch.library.opcheck(torch.ops.nmt.relu_backward, (torch.ones_like(out), out))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_dropout_drops_the_elements_of_the_definition(
    shape: tuple[int, int], dtype: torch.dtype, device: str
) -> None:
    x, numbers = drawn(*shape, dtype=dtype, device=device), torch.arange(shape[0], dtype=torch.int32)
    seed, numbers = torch.tensor(2**61 + 99, device=device), numbers.to(device)
    actual, expected = (
        module.dropped(x, seed, numbers * 2**24, numbers, 0.3)
        for module in (gpu_relu_and_dropout, plain_relu_and_dropout)
    )
    torch.testing.assert_close(actual, expected, rtol=0.01 if dtype != torch.float32 else 1e-6, atol=0)
    assert torch.equal(actual == 0, expected == 0)
