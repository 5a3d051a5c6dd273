"""Attention in groups of segments larger than a tile: an online softmax over blocks of keys.

The backward pass computes the weights again, block by block. Queries and keys have a kernel each, so that no
two programs add to the same gradient. A launch has programs for the number of blocks of the largest group. A
program returns at once if its block is after the end of its group.
Blocks outside of causal order or the window are never read. The reference is `attention/plain_attention.py`.

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
    softmax_step,
    visible,
    write,
)


# These change between batches. Triton would compile again for values of 1 and multiples of 16.
@triton.jit(do_not_specialize=["first", "back", "ahead", "threshold"])
def forward(
    q, k, v, out, lse,
    indices, seed, heads, first, back, ahead, scale, threshold, amplified,
    K: tl.constexpr, V: tl.constexpr, PADDED_K: tl.constexpr, PADDED_V: tl.constexpr,
    BLOCK: tl.constexpr, BANDED: tl.constexpr, DROPOUT: tl.constexpr,
):  # fmt: skip
    """Write `out` [T, heads, V], the attention of each query. A query without keys gets zeros.

    Also write `lse` [T, heads], the base-2 logarithm of the softmax divisor.
    """
    q_start, q_rows, k_start, k_rows = range_of(indices.ranges, first + tl.program_id(0) // heads)
    head, begin = tl.program_id(0) % heads, tl.program_id(1) * BLOCK
    if begin >= q_rows:
        return
    query = begin + tl.arange(0, BLOCK)
    is_query = query < q_rows
    q_tile = read(q, q_start + query, head, is_query, K, PADDED_K)
    q_segment = owners(indices.q_segments + q_start, query, is_query, -1)
    if DROPOUT:
        state = query_state(seed, indices, q_segment, head, q_start, query, is_query)
    highest = tl.full([BLOCK], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK], tl.float32)
    sums = tl.zeros([BLOCK, PADDED_V], tl.float32)
    for block in range(tl.maximum(begin - back, 0), tl.minimum(begin + BLOCK + ahead, k_rows), BLOCK):
        key = block + tl.arange(0, BLOCK)
        is_key = key < k_rows
        k_tile = read(k, k_start + key, head, is_key, K, PADDED_K)
        v_tile = read(v, k_start + key, head, is_key, V, PADDED_V)
        k_segment = owners(indices.k_segments + k_start, key, is_key, -2)
        mine, theirs = q_segment[:, None], k_segment[None, :]
        seen = visible(mine, theirs, query[:, None], key[None, :], back, ahead, BANDED)
        logits = scores(q_tile, k_tile, seen, scale)
        highest, total, weights, shrunk = softmax_step(highest, total, logits)
        # Dropout follows the sum: the divisor of the probabilities includes dropped ones.
        if DROPOUT:
            position = tl.load(indices.k_positions + k_start + key, mask=is_key, other=0)
            weights = dropped(weights, state[:, None], position[None, :], threshold, amplified)
        sums = tl.dot(weights.to(v_tile.dtype), v_tile, sums * shrunk[:, None], input_precision="ieee")
    highest = tl.where(highest == float("-inf"), 0.0, highest)
    total = tl.where(total == 0.0, 1.0, total)
    tl.store(lse + (q_start + query).to(tl.int64) * heads + head, highest + tl.log2(total), mask=is_query)
    write(out, q_start + query, head, is_query, sums / total[:, None], V, PADDED_V)


@triton.jit(do_not_specialize=["first", "back", "ahead", "threshold"])
def backward_queries(
    q, k, v, d_out, lse,
    delta, dq,
    indices, seed, heads, first, back, ahead, scale, threshold, amplified,
    K: tl.constexpr, V: tl.constexpr, PADDED_K: tl.constexpr, PADDED_V: tl.constexpr,
    BLOCK: tl.constexpr, BANDED: tl.constexpr, DROPOUT: tl.constexpr,
):  # fmt: skip
    """Write the gradient `dq`. Also write `delta` [T, heads], which `backward_keys` needs: for each query and
    head, the sum of weights * d_weights over the keys.

    The sum of out * d_out is the same and would save a pass over the keys, but `out` was rounded.

    lse: from `forward`. `d_out` is the gradient of `out`.
    first: the first group of this launch.
    back, ahead: the numbers of keys before and after its position that a query sees, if BANDED.
    threshold, amplified: for `dropped`.
    """
    q_start, q_rows, k_start, k_rows = range_of(indices.ranges, first + tl.program_id(0) // heads)
    head, begin = tl.program_id(0) % heads, tl.program_id(1) * BLOCK
    if begin >= q_rows:
        return
    query = begin + tl.arange(0, BLOCK)
    is_query = query < q_rows
    row = (q_start + query).to(tl.int64) * heads + head
    q_tile = read(q, q_start + query, head, is_query, K, PADDED_K)
    d_out_tile = read(d_out, q_start + query, head, is_query, V, PADDED_V)
    divisor = tl.load(lse + row, mask=is_query, other=0.0)
    q_segment = owners(indices.q_segments + q_start, query, is_query, -1)
    if DROPOUT:
        state = query_state(seed, indices, q_segment, head, q_start, query, is_query)
    left, right = tl.maximum(begin - back, 0), tl.minimum(begin + BLOCK + ahead, k_rows)
    mean = tl.zeros([BLOCK], tl.float32)
    d_q = tl.zeros([BLOCK, PADDED_K], tl.float32)
    # Two passes over the keys: the gradient needs the complete sum of the first pass.
    for is_second in tl.static_range(2):
        for block in range(left, right, BLOCK):
            key = block + tl.arange(0, BLOCK)
            is_key = key < k_rows
            k_tile = read(k, k_start + key, head, is_key, K, PADDED_K)
            v_tile = read(v, k_start + key, head, is_key, V, PADDED_V)
            k_segment = owners(indices.k_segments + k_start, key, is_key, -2)
            mine, theirs = q_segment[:, None], k_segment[None, :]
            seen = visible(mine, theirs, query[:, None], key[None, :], back, ahead, BANDED)
            weights = tl.exp2(scores(q_tile, k_tile, seen, scale) - divisor[:, None])
            d_weights = tl.dot(d_out_tile, tl.trans(v_tile), input_precision="ieee")
            if DROPOUT:
                position = tl.load(indices.k_positions + k_start + key, mask=is_key, other=0)
                d_weights = dropped(d_weights, state[:, None], position[None, :], threshold, amplified)
            if is_second:
                d_scores = (weights * (d_weights - mean[:, None]) * scale).to(k_tile.dtype)
                d_q = tl.dot(d_scores, k_tile, d_q, input_precision="ieee")
            else:
                mean += tl.sum(weights * d_weights, 1)
    tl.store(delta + row, mean, mask=is_query)
    write(dq, q_start + query, head, is_query, d_q, K, PADDED_K)


@triton.jit(do_not_specialize=["first", "back", "ahead", "threshold"])
def backward_keys(
    q, k, v, d_out, lse,
    delta, dk, dv,
    indices, seed, heads, first, back, ahead, scale, threshold, amplified,
    K: tl.constexpr, V: tl.constexpr, PADDED_K: tl.constexpr, PADDED_V: tl.constexpr,
    BLOCK: tl.constexpr, BANDED: tl.constexpr, DROPOUT: tl.constexpr,
):  # fmt: skip
    """Write the gradients `dk` and `dv`. `delta` is from `backward_queries`, and the other arguments are
    those of it.

    Weights are [keys, queries] here, so that no tile has to be transposed.
    """
    q_start, q_rows, k_start, k_rows = range_of(indices.ranges, first + tl.program_id(0) // heads)
    head, begin = tl.program_id(0) % heads, tl.program_id(1) * BLOCK
    if begin >= k_rows:
        return
    key = begin + tl.arange(0, BLOCK)
    is_key = key < k_rows
    k_tile = read(k, k_start + key, head, is_key, K, PADDED_K)
    v_tile = read(v, k_start + key, head, is_key, V, PADDED_V)
    d_k = tl.zeros([BLOCK, PADDED_K], tl.float32)
    d_v = tl.zeros([BLOCK, PADDED_V], tl.float32)
    k_segment = owners(indices.k_segments + k_start, key, is_key, -2)
    if DROPOUT:
        position = tl.load(indices.k_positions + k_start + key, mask=is_key, other=0)
    for block in range(tl.maximum(begin - ahead, 0), tl.minimum(begin + BLOCK + back, q_rows), BLOCK):
        query = block + tl.arange(0, BLOCK)
        is_query = query < q_rows
        row = (q_start + query).to(tl.int64) * heads + head
        q_tile = read(q, q_start + query, head, is_query, K, PADDED_K)
        d_out_tile = read(d_out, q_start + query, head, is_query, V, PADDED_V)
        divisor = tl.load(lse + row, mask=is_query, other=0.0)
        mean = tl.load(delta + row, mask=is_query, other=0.0)
        q_segment = owners(indices.q_segments + q_start, query, is_query, -1)
        theirs, mine = q_segment[None, :], k_segment[:, None]
        seen = visible(theirs, mine, query[None, :], key[:, None], back, ahead, BANDED)
        weights = tl.exp2(scores(k_tile, q_tile, seen, scale) - divisor[None, :])
        used = weights
        if DROPOUT:
            state = query_state(seed, indices, q_segment, head, q_start, query, is_query)
            used = dropped(weights, state[None, :], position[:, None], threshold, amplified)
        # Before `d_weights`, so that fewer tiles are needed at once. An H100 would spill registers.
        d_v = tl.dot(used.to(v_tile.dtype), d_out_tile, d_v, input_precision="ieee")
        d_weights = tl.dot(v_tile, tl.trans(d_out_tile), input_precision="ieee")
        if DROPOUT:
            d_weights = dropped(d_weights, state[None, :], position[:, None], threshold, amplified)
        d_scores = (weights * (d_weights - mean[None, :]) * scale).to(q_tile.dtype)
        d_k = tl.dot(d_scores, q_tile, d_k, input_precision="ieee")
    write(dk, k_start + key, head, is_key, d_k, K, PADDED_K)
    write(dv, k_start + key, head, is_key, d_v, V, PADDED_V)
