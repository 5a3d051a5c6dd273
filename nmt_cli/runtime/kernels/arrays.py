"""Tensors of a CPU as the arrays that compiled kernels take."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


def as_array(x: Tensor) -> NDArray[np.generic]:
    """The same memory; NumPy has no bfloat16, so of that the bits, as uint16."""
    array: NDArray[np.generic] = (x.view(torch.uint16) if x.dtype == torch.bfloat16 else x).numpy()
    return array
