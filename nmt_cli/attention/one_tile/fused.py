"""Attention in segments that fit one tile: a softmax over all keys at once, one program for all three
gradients.

A tile holds STACK heads of a segment, one below the other, so that even a short segment fills the 16 rows
that `tl.dot` wants; scores between different heads are masked. A launch has programs for every segment of the
batch; those whose longer side is not in (low, high] return at once, and another launch computes them.
"""

import triton
import triton.language as tl

from nmt_cli.attention.tile.fused import bounds, dropped, head_state, read, rows, scores, visible, write


# These change from batch to batch, and Triton would compile again where one is 1 or a multiple of 16.
@triton.jit(do_not_specialize=["low", "high", "behind", "ahead", "threshold"])
def forward(
    q,
    k,
    v,
    out,
    lse,
    q_starts,
    k_starts,
    seed,
    q_token,
    q_head,
    k_token,
    k_head,
    v_token,
    v_head,
    heads,
    low,
    high,
    behind,
    ahead,
    scale,
    threshold,
    amplified,
    K: tl.constexpr,
    V: tl.constexpr,
    PADDED_K: tl.constexpr,
    PADDED_V: tl.constexpr,
    TILE: tl.constexpr,
    STACK: tl.constexpr,
    BANDED: tl.constexpr,
    DROPOUT: tl.constexpr,
):
    """Write `out` [T, heads, V] and `lse` [T, heads], the logarithm to base 2 of the softmax's divisor."""
    groups = tl.cdiv(heads, STACK)
    segment = tl.program_id(0) // groups
    q_start, q_length, k_start, k_length = bounds(q_starts, k_starts, segment)
    longer = tl.maximum(q_length, k_length)
    if (longer <= low) | (longer > high):
        return
    token, head = _cells(tl.program_id(0) % groups, TILE, STACK)
    is_query = (token < q_length) & (head < heads)
    is_key = (token < k_length) & (head < heads)
    q_tile = read(q, rows(q_start, token, head, q_token, q_head), is_query, K, PADDED_K)
    k_tile = read(k, rows(k_start, token, head, k_token, k_head), is_key, K, PADDED_K)
    v_tile = read(v, rows(k_start, token, head, v_token, v_head), is_key, V, PADDED_V)
    seen = visible(token[:, None], token[None, :], q_length, k_length, behind, ahead, BANDED)
    seen = seen & (head[:, None] == head[None, :]) if STACK > 1 else seen
    logits = scores(q_tile, k_tile, seen, scale)
    highest = tl.max(logits, 1)
    # A row without any key, such as one that only fills the tile, gets zeros: -inf minus -inf would be nan.
    highest = tl.where(highest == float("-inf"), 0.0, highest)
    weights = tl.exp2(logits - highest[:, None])
    total = tl.sum(weights, 1)
    total = tl.where(total == 0.0, 1.0, total)
    tl.store(lse + (q_start + token).to(tl.int64) * heads + head, highest + tl.log2(total), mask=is_query)
    # Only now that they are summed up: dropout is of probabilities, whose divisor counts all of them.
    state = head_state(seed, segment, head)[:, None] if DROPOUT else 0
    weights = dropped(weights, state, token[:, None], token[None, :], threshold, amplified, DROPOUT)
    sums = tl.dot(weights.to(v_tile.dtype), v_tile, input_precision="ieee")
    places = rows(q_start, token, head, heads * V, V)
    write(out, places, is_query, sums / total[:, None], V, PADDED_V)


@triton.jit(do_not_specialize=["low", "high", "behind", "ahead", "threshold"])
def backward(
    q,
    k,
    v,
    d_out,
    lse,
    dq,
    dk,
    dv,
    q_starts,
    k_starts,
    seed,
    q_token,
    q_head,
    k_token,
    k_head,
    v_token,
    v_head,
    d_out_token,
    d_out_head,
    dq_token,
    dk_token,
    dv_token,
    heads,
    low,
    high,
    behind,
    ahead,
    scale,
    threshold,
    amplified,
    K: tl.constexpr,
    V: tl.constexpr,
    PADDED_K: tl.constexpr,
    PADDED_V: tl.constexpr,
    TILE: tl.constexpr,
    STACK: tl.constexpr,
    BANDED: tl.constexpr,
    DROPOUT: tl.constexpr,
):
    """Write `dq`, `dk` and `dv`; all else is read once, and the weights are computed again."""
    groups = tl.cdiv(heads, STACK)
    segment = tl.program_id(0) // groups
    q_start, q_length, k_start, k_length = bounds(q_starts, k_starts, segment)
    longer = tl.maximum(q_length, k_length)
    if (longer <= low) | (longer > high):
        return
    token, head = _cells(tl.program_id(0) % groups, TILE, STACK)
    is_query = (token < q_length) & (head < heads)
    is_key = (token < k_length) & (head < heads)
    q_tile = read(q, rows(q_start, token, head, q_token, q_head), is_query, K, PADDED_K)
    k_tile = read(k, rows(k_start, token, head, k_token, k_head), is_key, K, PADDED_K)
    v_tile = read(v, rows(k_start, token, head, v_token, v_head), is_key, V, PADDED_V)
    d_out_tile = read(d_out, rows(q_start, token, head, d_out_token, d_out_head), is_query, V, PADDED_V)
    seen = visible(token[:, None], token[None, :], q_length, k_length, behind, ahead, BANDED)
    seen = seen & (head[:, None] == head[None, :]) if STACK > 1 else seen
    divisor = tl.load(lse + (q_start + token).to(tl.int64) * heads + head, mask=is_query, other=0.0)
    weights = tl.exp2(scores(q_tile, k_tile, seen, scale) - divisor[:, None])
    state = head_state(seed, segment, head)[:, None] if DROPOUT else 0
    used = dropped(weights, state, token[:, None], token[None, :], threshold, amplified, DROPOUT)
    d_weights = tl.dot(d_out_tile, tl.trans(v_tile), input_precision="ieee")
    d_weights = dropped(d_weights, state, token[:, None], token[None, :], threshold, amplified, DROPOUT)
    d_v = tl.dot(tl.trans(used.to(v_tile.dtype)), d_out_tile, input_precision="ieee")
    write(dv, rows(k_start, token, head, dv_token, V), is_key, d_v, V, PADDED_V)
    # The gradient of a softmax: what is common to all its outputs changes none of them.
    delta = tl.sum(weights * d_weights, 1)
    d_scores = (weights * (d_weights - delta[:, None]) * scale).to(q_tile.dtype)
    d_q = tl.dot(d_scores, k_tile, input_precision="ieee")
    write(dq, rows(q_start, token, head, dq_token, K), is_query, d_q, K, PADDED_K)
    d_k = tl.dot(tl.trans(d_scores), q_tile, input_precision="ieee")
    write(dk, rows(k_start, token, head, dk_token, K), is_key, d_k, K, PADDED_K)


@triton.jit
def _cells(group, TILE: tl.constexpr, STACK: tl.constexpr):
    """The token (in its segment) and the head that each row of a tile stands for."""
    row = tl.arange(0, TILE)
    return row % (TILE // STACK), group * STACK + row // (TILE // STACK)
