"""Attention in groups of segments that fit one tile: one softmax, and one program for all gradients.

The mask is block-diagonal, because queries see no keys of other segments. A program computes one head of one
group. The reference is `attention/plain_attention.py`.

Legend: names in capitals are compile-time constants. `first` is the first group of the launch. PADDED_K and
PADDED_V are K and V rounded up to powers of two. `q`, `k`, `v`, `out` and their gradients are `Strided`, and
`indices` is an `Indices`.
"""

import triton
import triton.language as tl

from nmt_cli.attention.gpu_attention_parts import (
    dropped,
    owners,
    query_state,
    range_of,
    read,
    scores,
    visible,
    write,
)


# These change between batches. Triton would compile again for values of 1 and multiples of 16.
@triton.jit(do_not_specialize=["first", "back", "ahead", "threshold"])
def forward(
    q, k, v, out, lse,
    indices, seed, heads, first, back, ahead, scale, threshold, amplified,
    K: tl.constexpr, V: tl.constexpr, PADDED_K: tl.constexpr, PADDED_V: tl.constexpr,
    TILE: tl.constexpr, BANDED: tl.constexpr, DROPOUT: tl.constexpr,
):  # fmt: skip
    """Write `out` [T, heads, V], the attention of each query. A query without keys gets zeros.

    Also write `lse` [T, heads], the base-2 logarithm of the softmax divisor, for the backward pass.

    first: the first group of this launch.
    back, ahead: the numbers of keys before and after its position that a query sees, if BANDED.
    threshold, amplified: for `dropped`.
    """
    q_start, q_rows, k_start, k_rows = range_of(indices.ranges, first + tl.program_id(0) // heads)
    head = tl.program_id(0) % heads
    row = tl.arange(0, TILE)
    is_query, is_key = row < q_rows, row < k_rows
    q_tile = read(q, q_start + row, head, is_query, K, PADDED_K)
    k_tile = read(k, k_start + row, head, is_key, K, PADDED_K)
    v_tile = read(v, k_start + row, head, is_key, V, PADDED_V)
    q_segment = owners(indices.q_segments + q_start, row, is_query, -1)
    k_segment = owners(indices.k_segments + k_start, row, is_key, -2)
    seen = visible(q_segment[:, None], k_segment[None, :], row[:, None], row[None, :], back, ahead, BANDED)
    logits = scores(q_tile, k_tile, seen, scale)
    highest = tl.max(logits, 1)
    # A row without keys, such as padding of the tile, gets zeros: -inf minus -inf would be nan.
    highest = tl.where(highest == float("-inf"), 0.0, highest)
    weights = tl.exp2(logits - highest[:, None])
    total = tl.sum(weights, 1)
    total = tl.where(total == 0.0, 1.0, total)
    tl.store(lse + (q_start + row).to(tl.int64) * heads + head, highest + tl.log2(total), mask=is_query)
    # Dropout follows the sum: the divisor of the probabilities includes dropped ones.
    if DROPOUT:
        state = query_state(seed, indices, q_segment, head, q_start, row, is_query)
        key = tl.load(indices.k_positions + k_start + row, mask=is_key, other=0)
        weights = dropped(weights, state[:, None], key[None, :], threshold, amplified)
    sums = tl.dot(weights.to(v_tile.dtype), v_tile, input_precision="ieee")
    write(out, q_start + row, head, is_query, sums / total[:, None], V, PADDED_V)


@triton.jit(do_not_specialize=["first", "back", "ahead", "threshold"])
def backward(
    q, k, v, d_out, lse,
    dq, dk, dv,
    indices, seed, heads, first, back, ahead, scale, threshold, amplified,
    K: tl.constexpr, V: tl.constexpr, PADDED_K: tl.constexpr, PADDED_V: tl.constexpr,
    TILE: tl.constexpr, BANDED: tl.constexpr, DROPOUT: tl.constexpr,
):  # fmt: skip
    """Write the gradients `dq`, `dk` and `dv`.

    Compute the weights again from `lse`, and dropout again from `seed`. `d_out` is the gradient of `out`.
    """
    q_start, q_rows, k_start, k_rows = range_of(indices.ranges, first + tl.program_id(0) // heads)
    head = tl.program_id(0) % heads
    row = tl.arange(0, TILE)
    is_query, is_key = row < q_rows, row < k_rows
    q_tile = read(q, q_start + row, head, is_query, K, PADDED_K)
    k_tile = read(k, k_start + row, head, is_key, K, PADDED_K)
    v_tile = read(v, k_start + row, head, is_key, V, PADDED_V)
    d_out_tile = read(d_out, q_start + row, head, is_query, V, PADDED_V)
    q_segment = owners(indices.q_segments + q_start, row, is_query, -1)
    k_segment = owners(indices.k_segments + k_start, row, is_key, -2)
    seen = visible(q_segment[:, None], k_segment[None, :], row[:, None], row[None, :], back, ahead, BANDED)
    divisor = tl.load(lse + (q_start + row).to(tl.int64) * heads + head, mask=is_query, other=0.0)
    weights = tl.exp2(scores(q_tile, k_tile, seen, scale) - divisor[:, None])
    used = weights
    d_weights = tl.dot(d_out_tile, tl.trans(v_tile), input_precision="ieee")
    if DROPOUT:
        state = query_state(seed, indices, q_segment, head, q_start, row, is_query)
        key = tl.load(indices.k_positions + k_start + row, mask=is_key, other=0)
        used = dropped(weights, state[:, None], key[None, :], threshold, amplified)
        d_weights = dropped(d_weights, state[:, None], key[None, :], threshold, amplified)
    d_v = tl.dot(tl.trans(used.to(v_tile.dtype)), d_out_tile, input_precision="ieee")
    write(dv, k_start + row, head, is_key, d_v, V, PADDED_V)
    # Gradient of the softmax: a gradient that all outputs share has no effect.
    delta = tl.sum(weights * d_weights, 1)
    d_scores = (weights * (d_weights - delta[:, None]) * scale).to(q_tile.dtype)
    d_q = tl.dot(d_scores, k_tile, input_precision="ieee")
    write(dq, q_start + row, head, is_query, d_q, K, PADDED_K)
    d_k = tl.dot(tl.trans(d_scores), q_tile, input_precision="ieee")
    write(dk, k_start + row, head, is_key, d_k, K, PADDED_K)
