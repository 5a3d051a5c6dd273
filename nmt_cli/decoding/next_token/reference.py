"""The likeliest tokens in plain PyTorch: the reference of `fused.py`."""

import torch
from torch import Tensor


def likeliest(
    logits_RV: Tensor, count: int, never_V: Tensor, never_R: Tensor, only_R: Tensor
) -> tuple[Tensor, Tensor]:
    """Return log-probabilities and tokens. Arguments and result are those of `dispatch.likeliest`."""
    tokens_V = torch.arange(logits_RV.shape[1], device=logits_RV.device)
    allowed_RV = (~never_V & (tokens_V != never_R[:, None])) & (only_R < 0)[:, None]
    allowed_RV |= tokens_V == only_R[:, None]
    # Sorted by logits: two log-probabilities may round to the same value although their logits differ.
    ordered = logits_RV.masked_fill(~allowed_RV, -torch.inf).sort(dim=1, descending=True, stable=True)
    tokens_RC = ordered.indices[:, :count].contiguous()
    log_probs_RC = logits_RV.log_softmax(-1, dtype=torch.float32).gather(1, tokens_RC)
    return log_probs_RC.masked_fill(ordered.values[:, :count] == -torch.inf, -torch.inf), tokens_RC
