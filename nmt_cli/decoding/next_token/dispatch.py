"""Log-probabilities of the next token, and the highest of them, on any device.

R rows, each a hypothesis, and V entries of the vocabulary.
"""

from types import ModuleType

import numpy as np
import torch
from torch import Tensor

from nmt_cli.attention import dispatch
from nmt_cli.runtime.kernels.loading import compiled_kernels


def log_softmax(x_RV: Tensor) -> Tensor:
    """Return the log-softmax of each row in float32. Without gradients, `x_RV` may be overwritten."""
    kernels = None if torch.is_grad_enabled() else _kernels(x_RV)
    if not kernels:
        # The conversion to float32 is part of the operation: a copy would be as large as the result.
        return x_RV.log_softmax(-1, dtype=torch.float32)
    x_RV = x_RV.float().contiguous()
    kernels.log_softmax(x_RV.numpy(), x_RV.amax(1).numpy())
    return x_RV


def top(x_RV: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return the `count` highest values of each row, best first, and their columns, arbitrary for -inf."""
    kernels = _kernels(x_RV) if x_RV.dtype == torch.float32 else None
    if not kernels:
        return x_RV.topk(count)
    highest_RC = np.empty((len(x_RV), count), np.float32)
    columns_RC = np.empty((len(x_RV), count), np.int64)
    kernels.top(x_RV.numpy(), highest_RC, columns_RC)
    return torch.from_numpy(highest_RC), torch.from_numpy(columns_RC)


def _kernels(x_RV: Tensor) -> ModuleType | None:
    """Return the compiled kernels if one CPU thread is best for the rows of `x_RV`, else None."""
    suits = dispatch.one_thread_is_best(x_RV.device, len(x_RV))
    return compiled_kernels("decoding.next_token") if suits else None
