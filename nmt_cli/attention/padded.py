"""Ragged attention by PyTorch's own kernels: gathers to a padded view, for the attention only, and back."""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from nmt_cli.attention import dropout
from nmt_cli.machine.torch_private import softmax_backward
from nmt_cli.ragged import Layout

LONG = 512
"""Longer segments take PyTorch's fused kernel, which holds no weights; up to here it is the slower one."""


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
    q_BHMK, k_BHNK, v_BHNV = padded(q_THK, q), padded(k_SHK, k), padded(v_SHV, k)
    allowed_B1MN = _allowed(q, k, causal, window)
    if drop or max(q.longest, k.longest) <= LONG:
        factors = _dropout_factors(q, k, q_THK, drop, seed) if seed is not None and drop else None
        exact = torch.promote_types(q_THK.dtype, torch.float32)
        hidden_B1MN = torch.zeros_like(allowed_B1MN, dtype=exact).masked_fill_(~allowed_B1MN, -torch.inf)
        hidden_GMN = hidden_B1MN.expand(-1, q_THK.shape[1], q.longest, -1).flatten(0, 1)
        per_head = (x.flatten(0, 1) for x in (q_BHMK, k_BHNK, v_BHNV))
        out_GMV: Tensor = _Attention.apply(*per_head, hidden_GMN, factors)  # type: ignore[no-untyped-call]
    else:
        out_BHMV = F.scaled_dot_product_attention(q_BHMK, k_BHNK, v_BHNV, attn_mask=allowed_B1MN)
        out_GMV = out_BHMV.flatten(0, 1)
    out_THV: Tensor = _Taken.apply(out_GMV, _places(q, q_THK.shape[1]))  # type: ignore[no-untyped-call]
    if not torch.compiler.is_compiling() and k.lengths.all():
        return out_THV
    without_keys_B = k.starts.diff() == 0
    return out_THV.masked_fill(without_keys_B[q.segments, None, None], 0.0)


def padded(x_THD: Tensor, layout: Layout) -> Tensor:
    """[segments, heads, longest, D]; what lies behind a segment's end is some other token, to be masked.

    Gradients there are left out: they must be zero.
    """
    tokens, heads, _ = x_THD.shape
    columns_M = torch.arange(layout.longest, device=x_THD.device)
    tokens_B1M = (layout.starts[:-1, None, None] + columns_M).clamp(max=tokens - 1)
    heads_H1 = torch.arange(heads, device=x_THD.device)[:, None]
    spread: Tensor = _Spread.apply(x_THD, tokens_B1M, heads_H1, _places(layout, heads))  # type: ignore[no-untyped-call]
    return spread


def _places(layout: Layout, heads: int) -> Tensor:
    """[T, H]: the row of each token's head in the padded view."""
    heads_H = torch.arange(heads, device=layout.starts.device)
    return (layout.segments[:, None] * heads + heads_H) * layout.longest + layout.positions[:, None]


def _rows(x_THD: Tensor) -> tuple[Tensor, int]:
    """A row for each head of each token, and how many rows two tokens are apart.

    No copy is made of one part of a packed projection, which has rows of other parts between its tokens.
    """
    tokens, heads, width = x_THD.shape
    if x_THD.stride(2) == 1 and x_THD.stride(1) == width and x_THD.stride(0) % width == 0:
        apart = x_THD.stride(0) // width
        return x_THD.as_strided(((tokens - 1) * apart + heads, width), (width, 1)), apart
    return x_THD.reshape(-1, width), heads


class _Spread(torch.autograd.Function):
    """Rows to a padded view. Backward is a selection too, which is much faster than PyTorch's own sum."""

    @staticmethod
    def forward(ctx: Any, x_THD: Tensor, tokens_B1M: Tensor, heads_H1: Tensor, places_TH: Tensor) -> Tensor:
        ctx.save_for_backward(places_TH)
        rows, apart = _rows(x_THD)
        rows_BHM = tokens_B1M * apart + heads_H1
        return rows.index_select(0, rows_BHM.flatten()).view(*rows_BHM.shape, x_THD.shape[2])

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (places_TH,) = ctx.saved_tensors
        width = grads[0].shape[3]
        rows = grads[0].reshape(-1, width)
        return rows.index_select(0, places_TH.flatten()).view(*places_TH.shape, width), None, None, None


class _Taken(torch.autograd.Function):
    """Rows of a padded view, each at most once, so that backward need not sum."""

    @staticmethod
    def forward(ctx: Any, x_GMD: Tensor, places_TH: Tensor) -> Tensor:
        ctx.save_for_backward(places_TH)
        ctx.shape = x_GMD.shape
        width = x_GMD.shape[2]
        return x_GMD.reshape(-1, width).index_select(0, places_TH.flatten()).view(*places_TH.shape, width)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        (places_TH,) = ctx.saved_tensors
        width = ctx.shape[2]
        zeros = grads[0].new_zeros(ctx.shape)
        zeros.view(-1, width).index_copy_(0, places_TH.flatten().long(), grads[0].reshape(-1, width))
        return zeros, None


class _Attention(torch.autograd.Function):
    """Attention as products of many small matrices, for which PyTorch's own kernels are slow on a CPU.

    G is a head of a segment; to products of more axes than three, PyTorch would bring copies.
    """

    @staticmethod
    def forward(
        ctx: Any, q_GMK: Tensor, k_GNK: Tensor, v_GNV: Tensor, hidden_GMN: Tensor, factors: Tensor | None
    ) -> Tensor:
        exact = hidden_GMN.dtype  # rounded to fewer bits, large scores would change the weights by percents
        with torch.autocast(q_GMK.device.type, enabled=False):
            scale = q_GMK.shape[-1] ** -0.5
            scores_GMN = torch.baddbmm(hidden_GMN, q_GMK.to(exact), k_GNK.to(exact).mT, alpha=scale)
        weights_GMN = scores_GMN.softmax(-1)
        ctx.save_for_backward(q_GMK, k_GNK, v_GNV, weights_GMN, factors)
        return _used(weights_GMN, factors).to(v_GNV.dtype) @ v_GNV

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        q_GMK, k_GNK, v_GNV, weights_GMN, factors = ctx.saved_tensors
        d_v = _used(weights_GMN, factors).to(v_GNV.dtype).mT @ grads[0]
        d_weights = _used((grads[0] @ v_GNV.mT).to(weights_GMN.dtype), factors)
        d_scores = softmax_backward(d_weights, weights_GMN)
        d_scores = d_scores.mul_(q_GMK.shape[-1] ** -0.5).to(q_GMK.dtype)
        return d_scores @ k_GNK, d_scores.mT @ q_GMK, d_v, None, None


def _used(weights_GMN: Tensor, factors_GMN: Tensor | None) -> Tensor:
    return weights_GMN if factors_GMN is None else weights_GMN * factors_GMN


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


def _dropout_factors(q: Layout, k: Layout, q_THK: Tensor, drop: float, seed: Tensor) -> Tensor:
    """[G, M, N]: what each weight is multiplied by, 0 or what makes up for those."""
    shape = (len(q.lengths), q_THK.shape[1], q.longest, k.longest)
    segments, heads, queries, keys = (
        torch.arange(size, dtype=torch.int32, device=seed.device) for size in shape
    )
    numbers = (segments[:, None, None, None], heads[:, None, None], queries[:, None], keys)
    exact = torch.promote_types(q_THK.dtype, torch.float32)
    return (dropout.kept(seed, *numbers, drop).to(exact) / (1 - drop)).flatten(0, 1)
