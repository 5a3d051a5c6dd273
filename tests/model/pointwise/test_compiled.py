"""Compiled norms, compared with PyTorch in float64."""

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from nmt_cli.decoding.fast.int8 import POINTWISE
from nmt_cli.runtime.kernels.loading import compiled_kernels


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e6])
@pytest.mark.parametrize("shape", [(1, 8), (5, 513)])
def test_norms_and_normed_sums_equal_those_of_pytorch(shape: tuple[int, int], scale: float) -> None:
    kernels = compiled_kernels(POINTWISE)
    assert kernels, "the tests need Numba"
    draw = torch.Generator().manual_seed(1)
    x, y = (torch.randn(shape, generator=draw) * scale + scale for _ in range(2))
    weight, bias = (torch.randn(shape[1], generator=draw) for _ in range(2))
    arrays = [tensor.numpy() for tensor in (weight, bias)]

    def exact(rows: torch.Tensor) -> torch.Tensor:
        return F.layer_norm(rows.double(), shape[1:], weight.double(), bias.double(), 1e-6)

    actual = np.empty(shape, np.float32)
    kernels.normed(x.numpy(), actual, *arrays, 1e-6)
    assert torch.allclose(torch.from_numpy(actual).double(), exact(x), rtol=0, atol=2e-5)
    summed = exact(x.double() + y.double())
    kernels.normed_sum(x.numpy(), y.numpy(), *arrays, 1e-6)
    assert torch.allclose(y.double(), summed, rtol=0, atol=2e-5)


def test_nan_stays_nan_and_affects_no_other_row() -> None:
    kernels = compiled_kernels(POINTWISE)
    assert kernels, "the tests need Numba"
    x, ones = np.ones((2, 8), np.float32), np.ones(8, np.float32)
    x[0, 3] = np.nan
    actual = np.empty_like(x)
    kernels.normed(x, actual, ones, ones, 1e-6)
    assert np.isnan(actual[0]).all() and (actual[1] == 1).all()
