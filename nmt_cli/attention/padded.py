"""Ragged attention by PyTorch's own kernels: gathers to a padded view, for the attention only, and back."""

from typing import Any

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
        nothing = q_THK[:0].sum() + k_SHK[:0].sum() + v_SHV[:0].sum()
        return q_THK.new_zeros((*q_THK.shape[:2], v_SHV.shape[2])) + nothing
    q_BHMK = padded(q_THK, q)
    k_BHNK, v_BHNV = padded(k_SHK, k), padded(v_SHV, k)
    allowed_B1MN = _allowed(q, k, causal, window)
    if drop and seed is not None:
        out_BHMV = _with_dropout(q_BHMK, k_BHNK, v_BHNV, allowed_B1MN, drop, seed)
    else:
        out_BHMV = F.scaled_dot_product_attention(q_BHMK, k_BHNK, v_BHNV, attn_mask=allowed_B1MN)
    rows_THV: Tensor = _Taken.apply(out_BHMV.transpose(1, 2).flatten(0, 1), _places(q))  # type: ignore[no-untyped-call]
    without_keys_B = k.starts.diff() == 0
    return rows_THV.masked_fill(without_keys_B[q.segments, None, None], 0.0)


def padded(x_THD: Tensor, layout: Layout) -> Tensor:
    """[segments, heads, longest, D]; what lies behind a segment's end is some other token, to be masked.

    Gradients there are left out: they must be zero.
    """
    columns = torch.arange(layout.longest, dtype=torch.int32, device=x_THD.device)
    sources = (layout.starts[:-1, None] + columns).clamp(max=x_THD.shape[0] - 1)
    rows: Tensor = _Spread.apply(x_THD, sources.flatten(), _places(layout))  # type: ignore[no-untyped-call]
    return rows.view(len(layout.lengths), layout.longest, *x_THD.shape[1:]).transpose(1, 2)


def _places(layout: Layout) -> Tensor:
    """The row of each token in the padded view."""
    return (layout.segments * layout.longest + layout.positions).long()


class _Spread(torch.autograd.Function):
    """Rows to a padded view. Backward is a selection too, which is much faster than PyTorch's own sum."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, sources: Tensor, places: Tensor) -> Tensor:
        ctx.save_for_backward(places)
        return x.index_select(0, sources)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        (places,) = ctx.saved_tensors
        return grads[0].index_select(0, places), None, None


class _Taken(torch.autograd.Function):
    """Rows of a padded view, each at most once, so that backward need not sum."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, places: Tensor) -> Tensor:
        ctx.save_for_backward(places)
        ctx.rows = x.shape[0]
        return x.index_select(0, places)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        (places,) = ctx.saved_tensors
        zeros = grads[0].new_zeros(ctx.rows, *grads[0].shape[1:])
        return zeros.index_copy_(0, places, grads[0]), None


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
    mixed_BHMV: Tensor = (weights_BHMN * kept_BHMN / (1 - drop)).to(v_BHNV.dtype) @ v_BHNV
    return mixed_BHMV
