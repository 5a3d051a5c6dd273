"""What lies between matrix products, by our kernels: on a GPU, or in Triton's interpreter."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from nmt_cli.model.pointwise import reference

pytest.importorskip("triton")
from nmt_cli.model.pointwise import fused

DTYPES = [torch.float32, torch.float16, torch.bfloat16]
SHAPES = [(1, 1), (1, 300), (15, 8), (16, 256), (300, 40), (129, 257), (0, 8)]


def drawn(*shape: int, dtype: torch.dtype, device: str, seed: int = 1) -> Tensor:
    draw = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=draw, dtype=torch.float64).to(device, dtype)


@pytest.mark.parametrize("dtype", [*DTYPES, torch.float64], ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_the_mask_of_a_relu_and_the_sum_of_its_gradient_are_those_of_pytorch(
    shape: tuple[int, int], dtype: torch.dtype, device: str
) -> None:
    d_out = drawn(*shape, dtype=dtype, device=device)
    out = drawn(*shape, dtype=dtype, device=device, seed=2).relu()
    d_in, d_bias = fused.relu_backward(d_out, out)
    wanted, exact = reference.relu_backward(d_out, out)[0], reference.relu_backward(d_out.double(), out)[1]
    assert d_in.dtype == dtype and torch.equal(d_in, wanted)
    assert d_bias.dtype == torch.promote_types(dtype, torch.float32)
    largest = float(d_out.abs().sum(0).max()) if len(d_out) else 0.0
    assert float((d_bias - exact).abs().max()) <= 4 * torch.finfo(d_bias.dtype).eps * largest


def test_a_gradient_that_is_a_view_is_read_where_it_lies(device: str) -> None:
    out = drawn(40, 24, dtype=torch.float32, device=device).relu()
    both = drawn(40, 48, dtype=torch.float32, device=device)
    for d_out in (both[:, 24:], both[:, ::2], both[:1, :24].expand(40, 24)):
        whole = fused.relu_backward(d_out.contiguous(), out)
        assert all(map(torch.equal, fused.relu_backward(d_out, out), whole))


def test_a_gradient_passes_where_the_output_is_not_a_number(device: str) -> None:
    out = torch.tensor([[float("nan"), 0.0, 2.0, -0.0]], device=device)
    found, _ = fused.relu_backward(torch.full_like(out, 3.0), out)
    assert found.tolist() == torch.ops.aten.threshold_backward(torch.full_like(out, 3.0), out, 0).tolist()
    assert found.tolist() == [[3.0, 0.0, 3.0, 0.0]]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_projection_with_relu_errs_at_most_twice_as_much_as_plain_pytorch(
    dtype: torch.dtype, device: str
) -> None:
    shapes = ((150, 24), (40, 24), (40,), (150, 40))
    x, weight, bias, d_out = (drawn(*each, dtype=dtype, device=device, seed=len(each)) for each in shapes)

    def differentiated(project: Callable[..., Tensor], exact: bool = False) -> list[Tensor]:
        inputs = [(each.double() if exact else each).detach().requires_grad_() for each in (x, weight, bias)]
        out = project(*inputs)
        return [out.detach(), *torch.autograd.grad(out, inputs, d_out.to(out.dtype))]

    right = differentiated(reference.relu_linear, exact=True)
    plain, ours = differentiated(reference.relu_linear), differentiated(fused.relu_linear)
    for e, theirs, mine in zip(right, plain, ours, strict=True):
        assert mine.dtype == theirs.dtype and mine.shape == theirs.shape
        assert (mine - e).abs().max() <= 2 * (theirs - e).abs().max() + 1e-6


def test_a_bias_in_fp32_gets_its_gradient_in_fp32_beside_half_factors(device: str) -> None:
    x, weight = (drawn(300, width, dtype=torch.float16, device=device) for width in (16, 16))
    bias = torch.zeros(300, device=device, requires_grad=True)
    out = fused.relu_linear(x, weight, bias)
    assert out.dtype == torch.float16
    d_out = drawn(300, 300, dtype=torch.float16, device=device, seed=3)
    (found,) = torch.autograd.grad(out, bias, d_out)
    wanted = (d_out.double() * (out > 0)).sum(0)
    assert found.dtype == torch.float32
    assert float((found - wanted).abs().max()) < 1e-4  # half precision errs by 1e-2


def test_what_needs_no_gradient_is_not_differentiated(device: str) -> None:
    x, weight = (drawn(20, 16, dtype=torch.float32, device=device) for _ in range(2))
    bias = torch.zeros(20, device=device, requires_grad=True)
    (found,) = torch.autograd.grad(fused.relu_linear(x, weight, bias).sum(), bias)
    wanted = torch.autograd.grad(reference.relu_linear(x, weight, bias).sum(), bias)[0]
    assert torch.equal(found, wanted)
    with torch.no_grad():
        assert torch.equal(fused.relu_linear(x, weight, bias), reference.relu_linear(x, weight, bias))


def test_the_operators_keep_the_promises_of_custom_operators(device: str) -> None:
    x, weight = (drawn(20, 16, dtype=torch.float32, device=device).requires_grad_() for _ in range(2))
    bias = torch.zeros(20, device=device, requires_grad=True)
    torch.library.opcheck(torch.ops.nmt.relu_linear, (x, weight, bias))
    out = fused.relu_linear(x, weight, bias).detach()
    torch.library.opcheck(torch.ops.nmt.relu_backward, (torch.ones_like(out), out))
