"""Functions that the attention kernels share: reading and writing a tile, mask, scores and dropout.

Arguments that belong together are named tuples, which Triton takes apart into one argument each.
"""

from typing import Any, NamedTuple

import triton
import triton.language as tl

from nmt_cli.attention import dropout_hash

GOLDEN = tl.constexpr(dropout_hash.GOLDEN)
OFFSET = tl.constexpr(dropout_hash.OFFSET)
MIX_1 = tl.constexpr(dropout_hash.MIX_1)
MIX_2 = tl.constexpr(dropout_hash.MIX_2)
# The softmax uses powers of 2, for which the device has an instruction.
LOG2_E = tl.constexpr(1.4426950408889634)


class Strided(NamedTuple):
    """A tensor [tokens, heads, channels]. A token's heads and their channels are adjacent in memory."""

    data: Any
    token: int
    """The stride from a token to the next."""


class Indices(NamedTuple):
    """The index tensors of a batch: its groups, and of each token the segment and the position in it."""

    ranges: Any
    """[4 * segments], as `Groups.ranges`."""

    q_segments: Any
    k_segments: Any
    q_positions: Any
    k_positions: Any
    mask_keys: Any
    """[segments]: a word for the hash of the dropout mask."""


@triton.jit
def range_of(ranges, group):
    """Return the first query, number of queries, first key and number of keys of the group `group`."""
    q_start = tl.load(ranges + group * 4)
    q_rows = tl.load(ranges + group * 4 + 1)
    k_start = tl.load(ranges + group * 4 + 2)
    k_rows = tl.load(ranges + group * 4 + 3)
    return q_start, q_rows, k_start, k_rows


@triton.jit
def read(x, token, head, inside, WIDTH: tl.constexpr, PADDED: tl.constexpr):
    """Read a tile [rows, PADDED]: one head of the tokens numbered `token` of `x`, which is `Strided`.

    Rows that are not `inside`, and columns from WIDTH on, are zeros.
    """
    channels = tl.arange(0, PADDED)
    mask = inside[:, None] & (channels < WIDTH)[None, :]
    # int64, as large batches exceed 2^31.
    offsets = token.to(tl.int64) * x.token + head.to(tl.int64) * WIDTH
    return tl.load(x.data + offsets[:, None] + channels[None, :], mask=mask, other=0.0)


@triton.jit
def write(x, token, head, inside, values, WIDTH: tl.constexpr, PADDED: tl.constexpr):
    """Write a tile to one head of the tokens numbered `token` of `x`, which is `Strided`, in its type.

    Skip rows not `inside`, and columns from WIDTH on.
    """
    channels = tl.arange(0, PADDED)
    mask = inside[:, None] & (channels < WIDTH)[None, :]
    values = values.to(x.data.dtype.element_ty)
    offsets = token.to(tl.int64) * x.token + head.to(tl.int64) * WIDTH
    tl.store(x.data + offsets[:, None] + channels[None, :], values, mask=mask)


@triton.jit
def owners(segments, row, inside, OTHERWISE: tl.constexpr):
    """Return the segment of each row of a group, or OTHERWISE for rows that are not `inside`.

    `segments` points to the first token of the group. Adding it to each row instead would cost registers: a
    kernel for sm_80 then spilled 104 bytes.
    """
    return tl.load(segments + row, mask=inside, other=OTHERWISE)


@triton.jit
def visible(q_segment, k_segment, queries, keys, back, ahead, BANDED: tl.constexpr):
    """Return whether a query sees a key of the same segment. All arguments broadcast.

    `queries` and `keys` are rows of the group. If BANDED, for causal order or a window, a query sees `back`
    keys before and `ahead` keys after it. BANDED needs one layout for queries and keys.
    """
    seen = q_segment == k_segment
    if BANDED:
        seen = seen & (keys >= queries - back) & (keys <= queries + ahead)
    return seen


@triton.jit
def scores(left, right, seen, scale):
    """Return products of rows of `left` and `right`, times `scale` and log2(e), or -inf if not `seen`."""
    # Without this option, float32 would be multiplied as TF32, with 10 bits of mantissa.
    products = tl.dot(left, tl.trans(right), input_precision="ieee")
    return tl.where(seen, products * (scale * LOG2_E), float("-inf"))


@triton.jit
def softmax_step(highest, total, logits):
    """Include a block of base-2 `logits` [rows, columns] in the online softmax of each row.

    Return the new maximum, the new sum of weights, the weights of the block, and the factor for earlier sums.
    """
    higher = tl.maximum(highest, tl.max(logits, 1))
    # For rows without a visible column so far, -inf minus -inf would be nan.
    finite = tl.where(higher == float("-inf"), 0.0, higher)
    weights = tl.exp2(logits - finite[:, None])
    shrunk = tl.exp2(highest - finite)
    return higher, total * shrunk + tl.sum(weights, 1), weights, shrunk


@triton.jit
def query_state(seed, indices, segment, head, start, row, inside):
    """Start the hash that decides which attention weights dropout keeps: return its state after seed,
    segment, head and the query's position. `dropped` continues with the positions of the keys.

    The queries are the tokens `start` + `row`. Where `inside` is False, the position is not read and counts
    as 0.
    """
    number = tl.load(seed)
    state = absorbed(absorbed(0, number), number >> 32)
    position = tl.load(indices.q_positions + start + row, mask=inside, other=0)
    segment_key = tl.load(indices.mask_keys + segment, mask=inside, other=0)
    return absorbed(absorbed(absorbed(state, segment_key), head), position)


@triton.jit
def dropped(values, state, key_positions, threshold, amplified):
    """Apply dropout to `values`, attention weights or their gradients [queries, keys]: multiply each by
    `amplified`, or by 0.

    state: the queries' hash from `query_state`, with an axis for keys.
    threshold: with 24 bits of the hash below this, a value becomes 0.
    """
    keep = (absorbed(state, key_positions) >> 8).to(tl.int32) >= threshold
    return tl.where(keep, values * amplified, 0.0)


@triton.jit
def absorbed(state, word):
    """Return the state of the dropout hash after `state` has taken in the integer `word`.

    The order of the words counts. Only the low 32 bits of `word` do. `dropout_masks.keep_mask` defines the
    hash.
    """
    mixed = state + word.to(tl.uint32) * GOLDEN + OFFSET
    mixed = (mixed ^ (mixed >> 16)) * MIX_1
    mixed = (mixed ^ (mixed >> 13)) * MIX_2
    return mixed ^ (mixed >> 16)
