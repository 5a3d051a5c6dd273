"""Random tokens for the tests of the loss, and a function that differentiates a loss."""

import os
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # read when triton is imported

Batch = tuple[Tensor, Tensor, Tensor]


@pytest.fixture(scope="session")
def random_batch() -> Callable[..., Batch]:
    """Return `made(tokens, entries, width, dtype, every=0)`. It returns features [T, D], weights [V, D] in at
    least fp32, and targets. Each `every`th target is ignored."""

    def made(tokens: int, entries: int, width: int, dtype: torch.dtype, every: int = 0) -> Batch:
        draw = torch.Generator().manual_seed(tokens + entries)
        x_TD = torch.randn(tokens, width, generator=draw, dtype=torch.float64).to(dtype)
        weight_VD = torch.randn(entries, width, generator=draw, dtype=torch.float64)
        targets_T = torch.randint(entries, (tokens,), generator=draw)
        if every:
            targets_T[::every] = -1
        return x_TD, weight_VD.to(torch.promote_types(dtype, torch.float32)), targets_T

    return made


@pytest.fixture(scope="session")
def differentiated() -> Callable[..., list[Tensor]]:
    """Return a function that computes a loss. The function returns the smoothed loss, the NLL, and the
    gradients of x and weight. The gradients are of `incoming` times the smoothed loss."""

    def both(
        function: Callable[..., tuple[Tensor, Tensor]],
        x_TD: Tensor,
        weight_VD: Tensor,
        targets_T: Tensor,
        incoming: float = 1.0,
        **options: object,
    ) -> list[Tensor]:
        x, weight = (tensor.detach().clone().requires_grad_() for tensor in (x_TD, weight_VD))
        smoothed, nll = function(x, weight, targets_T, **options)
        (smoothed * incoming).backward()  # type: ignore[no-untyped-call]
        assert x.grad is not None and weight.grad is not None and not nll.requires_grad
        return [smoothed.detach(), nll, x.grad, weight.grad]

    return both
