"""Ragged attention by PyTorch's own kernels: gathers to a padded view, for the attention only, and back."""

import torch
from torch import Tensor
from torch.nn import functional as F

from nmt_cli.attention import dropout
from nmt_cli.ragged import Layout


def attend(
    q_THK: Tensor,
    k_SHK: Tensor,
    v_SHV: Tensor,
    q: Layout,
    k: Layout,
    *,
    causal: bool = False,
    window: int = 0,
    drop: float = 0.0,
    seed: Tensor | None = None,
) -> Tensor:
    """Do what `dispatch.attend` promises. B segments, M queries and N keys the longest of them have."""
    if not (q_THK.shape[0] and k_SHK.shape[0]):
        return q_THK.new_zeros((*q_THK.shape[:2], v_SHV.shape[2])) + (q_THK.sum() + k_SHK.sum() + v_SHV.sum())
    q_BHMK = padded(q_THK, q)
    k_BHNK, v_BHNV = padded(k_SHK, k), padded(v_SHV, k)
    allowed_B1MN = _allowed(q, k, causal, window)
    if drop and seed is not None:
        out_BHMV = _with_dropout(q_BHMK, k_BHNK, v_BHNV, allowed_B1MN, drop, seed)
    else:
        out_BHMV = F.scaled_dot_product_attention(q_BHMK, k_BHNK, v_BHNV, attn_mask=allowed_B1MN)
    out_THV = out_BHMV.transpose(1, 2)[q.segments, q.positions]
    keys_B = k.starts.diff()
    return out_THV.masked_fill((keys_B == 0)[q.segments, None, None], 0.0)


def padded(x_THD: Tensor, layout: Layout) -> Tensor:
    """[segments, heads, longest, D]; what lies behind a segment's end is some other token, to be masked."""
    columns = torch.arange(layout.longest, dtype=torch.int32, device=x_THD.device)
    index_BM = (layout.starts[:-1, None] + columns).clamp(max=x_THD.shape[0] - 1)
    return x_THD[index_BM].transpose(1, 2)


def _allowed(q: Layout, k: Layout, causal: bool, window: int) -> Tensor:
    """Which keys a query sees. A segment without keys sees whatever there is; its output is put to zero."""
    device = k.starts.device
    keys_N = torch.arange(k.longest, dtype=torch.int32, device=device)
    queries_M1 = torch.arange(q.longest, dtype=torch.int32, device=device)[:, None]
    lengths_B11 = k.starts.diff()[:, None, None]
    allowed_BMN = (keys_N < lengths_B11) | (lengths_B11 == 0)
    if causal:
        allowed_BMN = allowed_BMN & (keys_N <= queries_M1)
    if window:
        near = (keys_N >= queries_M1 - window // 2) & (keys_N <= queries_M1 + (window - 1) // 2)
        allowed_BMN = allowed_BMN & near | (queries_M1 >= lengths_B11)
    return allowed_BMN[:, None]


def _with_dropout(
    q_BHMK: Tensor, k_BHNK: Tensor, v_BHNV: Tensor, allowed_B1MN: Tensor, drop: float, seed: Tensor
) -> Tensor:
    scores_BHMN = q_BHMK @ k_BHNK.mT * q_BHMK.shape[-1] ** -0.5
    exact = torch.promote_types(scores_BHMN.dtype, torch.float32)
    weights_BHMN = scores_BHMN.masked_fill(~allowed_B1MN, float("-inf")).softmax(-1, dtype=exact)
    segments, heads, queries, keys = (
        torch.arange(size, dtype=torch.int32, device=seed.device) for size in weights_BHMN.shape
    )
    numbers = (segments[:, None, None, None], heads[:, None, None], queries[:, None], keys)
    kept_BHMN = dropout.kept(seed, *numbers, drop)
    return (weights_BHMN * kept_BHMN / (1 - drop)).to(v_BHNV.dtype) @ v_BHNV
