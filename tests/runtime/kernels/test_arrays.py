"""Arrays share the memory of their tensors."""

import numpy as np
import pytest
import torch

from nmt_cli.runtime.kernels.arrays import as_array


@pytest.mark.parametrize(
    ("dtype", "expected"), [(torch.float32, np.float32), (torch.bfloat16, np.uint16), (torch.int64, np.int64)]
)
def test_an_array_shares_the_memory_of_its_tensor(dtype: torch.dtype, expected: type) -> None:
    x = torch.arange(6).view(2, 3).to(dtype)
    array = as_array(x)
    assert array.dtype == expected and array.shape == (2, 3)
    array[0] = array[1]
    assert x[0].equal(x[1]) and x[0].tolist() == [3, 4, 5]
