"""View CPU tensors as the arrays that compiled kernels take."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


def as_array(x: Tensor) -> NDArray[np.generic]:
    """View a detached CPU tensor as an array of its memory. bfloat16 becomes uint16 of equal bits."""
    array: NDArray[np.generic] = (x.view(torch.uint16) if x.dtype == torch.bfloat16 else x).numpy()
    return array
