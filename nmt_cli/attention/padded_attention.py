"""Ragged attention in PyTorch's kernels, on a padded copy of queries, keys and values.

B segments, M queries and N keys of the longest segments, H heads. G is a head of a segment. J blocks.
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from nmt_cli.attention import dropout_masks
from nmt_cli.attention.attention_options import PLAIN, Options
from nmt_cli.ragged import Layout
from nmt_cli.runtime.kernels.torch_private import softmax_backward

MIN_BLOCK = 32
"""Minimum number of queries in a block."""

BLOCKS = 3
"""Segments are computed in blocks if they are this many times as long as the keys of a block."""

LONG = 512
"""Longer segments use PyTorch's fused kernel, which stores no weights. It is slower for shorter ones."""


def attend(
    q_THK: Tensor, k_SHK: Tensor, v_SHV: Tensor, q: Layout, k: Layout, options: Options = PLAIN
) -> Tensor:
    """Compute attention on padded copies. Arguments and result are those of `plain_attention.attend`."""
    if not (q_THK.shape[0] and k_SHK.shape[0]):
        # A sum of nothing, so that the result still has gradients, which are zeros.
        zero = q_THK[:0].sum() + k_SHK[:0].sum() + v_SHV[:0].sum()
        return q_THK.new_zeros((*q_THK.shape[:2], v_SHV.shape[2])) + zero
    if options.window and q.longest >= BLOCKS * (_block(options.window) + options.window):
        return _attend_in_blocks(q_THK, k_SHK, v_SHV, q, options)
    q_BHMK, k_BHNK, v_BHNV = padded(q_THK, q), padded(k_SHK, k), padded(v_SHV, k)
    allowed_B1MN = _allowed(q, k, options)
    bias_HMN = options.bias(q.longest, k.longest)
    if options.drop or max(q.longest, k.longest) <= LONG:
        factors = _dropout_factors(q, k, q_THK, options) if options.drop else None
        exact = torch.promote_types(q_THK.dtype, torch.float32)
        hidden_B1MN = torch.zeros_like(allowed_B1MN, dtype=exact).masked_fill_(~allowed_B1MN, -torch.inf)
        hidden_BHMN = hidden_B1MN.expand(-1, q_THK.shape[1], q.longest, -1)
        if bias_HMN is not None:
            hidden_BHMN = hidden_BHMN + bias_HMN
        hidden_GMN = hidden_BHMN.flatten(0, 1)
        per_head = (x.flatten(0, 1) for x in (q_BHMK, k_BHNK, v_BHNV))
        out_GMV: Tensor = _Attention.apply(*per_head, hidden_GMN, factors)  # type: ignore[no-untyped-call]
    else:
        if bias_HMN is not None:
            bias_BHMN = bias_HMN.to(q_BHMK.dtype).expand(len(allowed_B1MN), -1, -1, -1)
            allowed_B1MN = bias_BHMN.masked_fill(~allowed_B1MN, -torch.inf)
        out_BHMV = F.scaled_dot_product_attention(q_BHMK, k_BHNK, v_BHNV, attn_mask=allowed_B1MN)
        out_GMV = out_BHMV.flatten(0, 1)
    if _alone(q, len(q_THK)):
        return out_GMV.transpose(0, 1)
    out_THV: Tensor = _Unpad.apply(out_GMV, _padded_rows(q, q_THK.shape[1], q.longest))  # type: ignore[no-untyped-call]
    if not torch.compiler.is_compiling() and k.lengths.all():
        return out_THV
    without_keys_B = k.starts.diff() == 0
    return out_THV.masked_fill(without_keys_B[q.segments, None, None], 0.0)


def _block(window: int) -> int:
    """Return the number of queries in a block: `window`, or `MIN_BLOCK` if that is more."""
    return max(window, MIN_BLOCK)


def _attend_in_blocks(
    q_THK: Tensor, k_THK: Tensor, v_THV: Tensor, layout: Layout, options: Options
) -> Tensor:
    """Return [T, H, V]: self-attention in a window much smaller than the sentences. A block of M queries
    reads only the N keys that one of them may see."""
    size, heads = _block(options.window), q_THK.shape[1]
    back, ahead = options.back, options.ahead
    blocks = -(-layout.longest // size)
    end = blocks * size - layout.longest
    q_BHMK = F.pad(padded(q_THK, layout), (0, 0, 0, end)).unflatten(2, (blocks, size))  # type: ignore[no-untyped-call]
    k_BHJNK, v_BHJNV = (
        F.pad(padded(x, layout), (0, 0, back, end + ahead)).unfold(2, back + size + ahead, size).mT
        for x in (k_THK, v_THV)
    )
    first_J11 = torch.arange(blocks, dtype=torch.int32, device=q_THK.device)[:, None, None] * size
    queries_JM1 = first_J11 + torch.arange(size, dtype=torch.int32, device=q_THK.device)[:, None]
    keys_J1N = first_J11 - back + torch.arange(k_BHJNK.shape[3], dtype=torch.int32, device=q_THK.device)
    near_JMN = (keys_J1N >= queries_JM1 - back) & (keys_J1N <= queries_JM1 + ahead) & (keys_J1N >= 0)
    lengths_B111 = layout.starts.diff()[:, None, None, None]
    # A padding query sees all keys. Its output is not used, but its gradients must not be nan.
    seen_BJMN = near_JMN & (keys_J1N < lengths_B111) | (queries_JM1 >= lengths_B111)
    exact = torch.promote_types(q_THK.dtype, torch.float32)
    hidden_BJMN = torch.zeros_like(seen_BJMN, dtype=exact).masked_fill_(~seen_BJMN, -torch.inf)
    hidden_GMN = hidden_BJMN[:, None].expand(-1, heads, -1, -1, -1).flatten(0, 2)
    factors = None
    if options.drop:
        heads_H = torch.arange(heads, dtype=torch.int32, device=q_THK.device)
        numbers = (
            layout.mask_keys[:, None, None, None, None],
            heads_H[:, None, None, None],
            queries_JM1,
            keys_J1N,
        )
        factors = _factors(numbers, q_THK.dtype, options).flatten(0, 2)
    per_block = (x.flatten(0, 2) for x in (q_BHMK, k_BHJNK, v_BHJNV))
    out_GMV: Tensor = _Attention.apply(*per_block, hidden_GMN, factors)  # type: ignore[no-untyped-call]
    rows_TH = _padded_rows(layout, heads, blocks * size)
    out_THV: Tensor = _Unpad.apply(out_GMV, rows_TH)  # type: ignore[no-untyped-call]
    return out_THV


def padded(x_THD: Tensor, layout: Layout) -> Tensor:
    """Return [segments, heads, longest, D]: the tokens of each segment, with padding after them.

    The padding holds arbitrary tokens, which the caller must mask. The gradients of padding are ignored.
    """
    tokens, heads, _ = x_THD.shape
    if _alone(layout, tokens):
        return x_THD.transpose(0, 1).contiguous()[None]
    columns_M = torch.arange(layout.longest, device=x_THD.device)
    tokens_B1M = (layout.starts[:-1, None, None] + columns_M).clamp(max=tokens - 1)
    heads_H1 = torch.arange(heads, device=x_THD.device)[:, None]
    rows_TH = _padded_rows(layout, heads, layout.longest)
    padded_BHMD: Tensor = _Pad.apply(x_THD, tokens_B1M, heads_H1, rows_TH)  # type: ignore[no-untyped-call]
    return padded_BHMD


def _alone(layout: Layout, tokens: int) -> bool:
    """Return whether a view can replace the padded copy. This is so for a single segment with all tokens,
    without gradients and outside of torch.compile."""
    plain = not (torch.is_grad_enabled() or torch.compiler.is_compiling())
    return plain and len(layout.lengths) == 1 and layout.longest == tokens


def _padded_rows(layout: Layout, heads: int, longest: int) -> Tensor:
    """Return [T, H]: the row of each token and head in a tensor [segments x heads x `longest`, channels]."""
    heads_H = torch.arange(heads, device=layout.starts.device)
    return (layout.segments[:, None] * heads + heads_H) * longest + layout.positions[:, None]


def _rows(x_THD: Tensor) -> tuple[Tensor, int]:
    """Return a matrix with a row for each head and token, and the number of rows from one token to the next.

    A part of a packed projection, such as the keys, is a view without a copy. Then rows of the other parts
    are between its tokens.
    """
    tokens, heads, width = x_THD.shape
    if torch.compiler.is_compiling():  # fused tensors have no memory to view differently
        return x_THD.reshape(-1, width), heads
    if x_THD.stride(2) == 1 and x_THD.stride(1) == width and x_THD.stride(0) % width == 0:
        per_token = x_THD.stride(0) // width
        return x_THD.as_strided(((tokens - 1) * per_token + heads, width), (width, 1)), per_token
    return x_THD.reshape(-1, width), heads


class _Pad(torch.autograd.Function):
    """Copies rows to a padded tensor. Backward selects rows, which is much faster than PyTorch's sum."""

    @staticmethod
    def forward(ctx: Any, x_THD: Tensor, tokens_B1M: Tensor, heads_H1: Tensor, rows_TH: Tensor) -> Tensor:
        ctx.save_for_backward(rows_TH)
        rows, per_token = _rows(x_THD)
        rows_BHM = tokens_B1M * per_token + heads_H1
        return rows.index_select(0, rows_BHM.flatten()).view(*rows_BHM.shape, x_THD.shape[2])

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (rows_TH,) = ctx.saved_tensors
        width = grads[0].shape[3]
        rows = grads[0].reshape(-1, width)
        return rows.index_select(0, rows_TH.flatten()).view(*rows_TH.shape, width), None, None, None


class _Unpad(torch.autograd.Function):
    """Copies rows from a padded tensor, each at most once, so that backward does not need sums."""

    @staticmethod
    def forward(ctx: Any, x_GMD: Tensor, rows_TH: Tensor) -> Tensor:
        ctx.save_for_backward(rows_TH)
        ctx.shape = x_GMD.shape
        width = x_GMD.shape[2]
        return x_GMD.reshape(-1, width).index_select(0, rows_TH.flatten()).view(*rows_TH.shape, width)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        (rows_TH,) = ctx.saved_tensors
        width = ctx.shape[2]
        zeros = grads[0].new_zeros(ctx.shape)
        zeros.view(-1, width).index_copy_(0, rows_TH.flatten().long(), grads[0].reshape(-1, width))
        return zeros, None


class _Attention(torch.autograd.Function):
    """Attention as a batch of small matrix products, for which PyTorch's attention is slow on a CPU.

    Tensors have three axes, because PyTorch would copy tensors with more.
    """

    @staticmethod
    def forward(
        ctx: Any, q_GMK: Tensor, k_GNK: Tensor, v_GNV: Tensor, hidden_GMN: Tensor, factors: Tensor | None
    ) -> Tensor:
        """Return attention [G, M, V]. Add `hidden_GMN`, a bias or -inf, to scores. `factors` are for
        dropout."""
        exact = hidden_GMN.dtype  # with fewer bits, rounding large scores would change weights by percents
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
        d_hidden = d_scores.clone() if ctx.needs_input_grad[3] else None
        d_scores = d_scores.mul_(q_GMK.shape[-1] ** -0.5).to(q_GMK.dtype)
        return d_scores @ k_GNK, d_scores.mT @ q_GMK, d_v, d_hidden, None


def _used(weights_GMN: Tensor, factors_GMN: Tensor | None) -> Tensor:
    """Return the weights times the dropout factors, or unchanged without factors."""
    return weights_GMN if factors_GMN is None else weights_GMN * factors_GMN


def _allowed(q: Layout, k: Layout, options: Options) -> Tensor:
    """Return [B, 1, M, N]: True if a query sees a key. In segments without keys, queries see all keys.

    With a window, padding queries see all keys too. So no softmax is nan.
    """
    device = k.starts.device
    keys_N = torch.arange(k.longest, dtype=torch.int32, device=device)
    queries_M1 = torch.arange(q.longest, dtype=torch.int32, device=device)[:, None]
    lengths_B11 = k.starts.diff()[:, None, None]
    allowed_BMN = (keys_N < lengths_B11) | (lengths_B11 == 0)
    if options.causal:
        allowed_BMN = allowed_BMN & (keys_N <= queries_M1)
    if options.window:
        near = (keys_N >= queries_M1 - options.back) & (keys_N <= queries_M1 + options.ahead)
        allowed_BMN = allowed_BMN & near | (queries_M1 >= lengths_B11)
    return allowed_BMN[:, None]


def _dropout_factors(q: Layout, k: Layout, q_THK: Tensor, options: Options) -> Tensor:
    """Return [G, M, N]: factors for the weights of all queries and keys, as in `_factors`."""
    shape = (q_THK.shape[1], q.longest, k.longest)
    heads, queries, keys = (torch.arange(size, dtype=torch.int32, device=q_THK.device) for size in shape)
    numbers = (q.mask_keys[:, None, None, None], heads[:, None, None], queries[:, None], keys)
    return _factors(numbers, q_THK.dtype, options).flatten(0, 1)


def _factors(numbers: tuple[Tensor, Tensor, Tensor, Tensor], dtype: torch.dtype, options: Options) -> Tensor:
    """Return dropout factors, 0 or 1 / (1 - drop), for `numbers`: keys of segments, heads, queries, keys."""
    assert options.seed is not None
    mask = dropout_masks.keep_mask(options.seed, *numbers, options.drop)
    return mask.to(torch.promote_types(dtype, torch.float32)) / (1 - options.drop)
