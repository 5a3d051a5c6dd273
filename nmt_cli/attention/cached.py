"""Attention of a few new tokens over keys and values that are kept from step to step."""

from torch import Tensor
from torch.nn import functional as F


def attend_cached(q_BNHK: Tensor, k_BHCK: Tensor, v_BHCV: Tensor, seen_BC: Tensor) -> Tensor:
    """N queries of each of B rows over the C keys of that row which are `seen`: [B, N, H, V]."""
    mask_B11C = seen_BC[:, None, None]
    return F.scaled_dot_product_attention(
        q_BNHK.transpose(1, 2), k_BHCK, v_BHCV, attn_mask=mask_B11C
    ).transpose(1, 2)
