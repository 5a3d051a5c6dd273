"""The likeliest tokens after each hypothesis, by the log-probabilities of the whole vocabulary."""

import torch
from torch import Tensor


def likeliest(
    logits_RV: Tensor, count: int, never_V: Tensor, never_R: Tensor, only_R: Tensor
) -> tuple[Tensor, Tensor]:
    """See `dispatch.likeliest`."""
    tokens_V = torch.arange(logits_RV.shape[1], device=logits_RV.device)
    open_RV = (~never_V & (tokens_V != never_R[:, None])) & (only_R < 0)[:, None]
    open_RV |= tokens_V == only_R[:, None]
    # By the logits: log-probabilities of two that differ may be rounded to the same.
    kept = logits_RV.masked_fill(~open_RV, -torch.inf).sort(dim=1, descending=True, stable=True)
    tokens_RC = kept.indices[:, :count].contiguous()
    log_probs_RC = logits_RV.log_softmax(-1, dtype=torch.float32).gather(1, tokens_RC)
    return log_probs_RC.masked_fill(kept.values[:, :count] == -torch.inf, -torch.inf), tokens_RC
