"""The likeliest tokens after each hypothesis, by the log-probabilities of the whole vocabulary."""

import torch
from torch import Tensor
from torch.nn import functional as F

BLOCK = 128
"""Entries of the vocabulary of which only the best is looked at, where it does not stand out."""


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


def top(x_RV: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """As `topk`, which takes its time: what is best is in the blocks that have the best of all blocks."""
    blocks = x_RV.shape[1] // BLOCK
    if blocks <= count:
        return x_RV.topk(count)
    x_RNC = x_RV[:, : blocks * BLOCK].view(-1, blocks, BLOCK)
    within_RW = x_RNC.amax(2).topk(count).indices
    each_R1 = torch.arange(len(x_RV), device=x_RV.device)[:, None]
    rest_RC = x_RV[:, blocks * BLOCK :]
    found, where = torch.cat([x_RNC[each_R1, within_RW].flatten(1), rest_RC], 1).topk(count)
    # The rest stands behind the blocks that were chosen as if it were one more of these.
    number = F.pad(within_RW, (0, 1), value=blocks).gather(1, where // BLOCK)
    return found, number * BLOCK + where % BLOCK
