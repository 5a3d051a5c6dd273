"""Log-probabilities of the next token, and the likeliest tokens, on any device.

R rows, each a hypothesis, and V entries of the vocabulary.
"""

from types import ModuleType

import numpy as np
import torch
from torch import Tensor

from nmt_cli.attention import dispatch
from nmt_cli.runtime.kernels.loading import compiled_kernels


def log_softmax(x_RV: Tensor) -> Tensor:
    """Return the log-softmax of each row in float32. If gradients are off, this may overwrite `x_RV`."""
    kernels = None if torch.is_grad_enabled() else _kernels(x_RV)
    if not kernels:
        # The conversion to float32 is part of the operation: a copy would be as large as the result.
        return x_RV.log_softmax(-1, dtype=torch.float32)
    x_RV = x_RV.float().contiguous()
    kernels.log_softmax(x_RV.numpy(), x_RV.amax(1).numpy())
    return x_RV


def top(x_RV: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return the `count` highest values of each row, best first, and their columns, both [R, count].

    The column of a value of -inf is arbitrary.
    """
    kernels = _kernels(x_RV) if x_RV.dtype == torch.float32 else None
    if not kernels:
        return x_RV.topk(count)
    highest_RC = np.empty((len(x_RV), count), np.float32)
    columns_RC = np.empty((len(x_RV), count), np.int64)
    kernels.top(x_RV.numpy(), highest_RC, columns_RC)
    return torch.from_numpy(highest_RC), torch.from_numpy(columns_RC)


def likeliest(
    logits_RV: Tensor, count: int, never_V: Tensor, never_R: Tensor, only_R: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the `count` highest log-probabilities of each row, best first, and their tokens.

    Both are [R, count]. The log-probabilities are float32. Equal ones are in the order of their tokens.
    An entry of -inf means that the row has no more tokens.

    Args:
        logits_RV: Logits in any precision. All of them count in the softmax.
        count: Number of tokens per row.
        never_V: Mask of tokens that are excluded in all rows.
        never_R: A token that is excluded in its row, or -1.
        only_R: The only token that is allowed in its row, even if it is excluded otherwise, or -1.
    """
    if logits_RV.device.type == "cuda":
        from nmt_cli.decoding.next_token import fused  # Triton is absent on machines without a GPU

        return fused.likeliest(logits_RV, count, never_V, never_R, only_R)
    return plain_likeliest(logits_RV, count, never_V, never_R, only_R)


def plain_likeliest(
    logits_RV: Tensor, count: int, never_V: Tensor, never_R: Tensor, only_R: Tensor
) -> tuple[Tensor, Tensor]:
    """Return log-probabilities and tokens like `likeliest`, by PyTorch operations on any device."""
    tokens_V = torch.arange(logits_RV.shape[1], device=logits_RV.device)
    allowed_RV = (~never_V & (tokens_V != never_R[:, None])) & (only_R < 0)[:, None]
    allowed_RV |= tokens_V == only_R[:, None]
    # Sorted by logits: two log-probabilities may round to the same value although their logits differ.
    ordered = logits_RV.masked_fill(~allowed_RV, -torch.inf).sort(dim=1, descending=True, stable=True)
    tokens_RC = ordered.indices[:, :count].contiguous()
    log_probs_RC = logits_RV.log_softmax(-1, dtype=torch.float32).gather(1, tokens_RC)
    return log_probs_RC.masked_fill(ordered.values[:, :count] == -torch.inf, -torch.inf), tokens_RC


def _kernels(x_RV: Tensor) -> ModuleType | None:
    """Return the compiled kernels, or None if they are absent or not the fastest for these rows."""
    suits = dispatch.one_thread_is_best(x_RV.device, len(x_RV))
    return compiled_kernels("decoding.next_token") if suits else None
