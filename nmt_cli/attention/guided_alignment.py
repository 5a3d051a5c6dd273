"""The loss of guided alignment, which teaches one head of attention the alignments of words."""

import torch
from torch import Tensor

from nmt_cli.attention.padded_attention import padded
from nmt_cli.ragged import Layout


def alignment_loss(q_TK: Tensor, k_SK: Tensor, target: Layout, source: Layout, links_2L: Tensor) -> Tensor:
    """Return the cross-entropy of a head's attention with the alignments, summed over the target tokens.

    `links_2L` has the target token and the source token of each link, counted in the batch. The links of a
    target token share its probability equally. A target token without links adds nothing.
    """
    exact = torch.promote_types(q_TK.dtype, torch.float32)
    q_BMK, k_BNK = (padded(x[:, None].to(exact), side)[:, 0] for x, side in ((q_TK, target), (k_SK, source)))
    scores_BMN = q_BMK @ k_BNK.mT * q_TK.shape[1] ** -0.5
    hidden_BN = torch.arange(k_BNK.shape[1], device=k_SK.device) >= source.starts.diff()[:, None]
    scores_BMN = scores_BMN.masked_fill(hidden_BN[:, None], float("-inf"))
    targets_L, sources_L = links_2L
    chosen_L = scores_BMN.log_softmax(-1)[
        target.segments[targets_L], target.positions[targets_L], source.positions[sources_L]
    ]
    links_T = torch.zeros_like(q_TK[:, 0], dtype=exact).index_add(0, targets_L, torch.ones_like(chosen_L))
    loss: Tensor = -(chosen_L / links_T[targets_L]).sum()
    return loss
