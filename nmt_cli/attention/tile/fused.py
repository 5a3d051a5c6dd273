"""Functions that the attention kernels share: reading and writing a tile, mask, scores and dropout."""

import triton
import triton.language as tl

from nmt_cli.attention import dropout

GOLDEN = tl.constexpr(dropout.GOLDEN)
OFFSET = tl.constexpr(dropout.OFFSET)
MIX_1 = tl.constexpr(dropout.MIX_1)
MIX_2 = tl.constexpr(dropout.MIX_2)
# The softmax uses powers of 2, for which the device has an instruction.
LOG2_E = tl.constexpr(1.4426950408889634)


@triton.jit
def place(places, group):
    """Return the first query, the number of queries, the first key and the number of keys of a group."""
    q_start = tl.load(places + group * 4)
    q_rows = tl.load(places + group * 4 + 1)
    k_start = tl.load(places + group * 4 + 2)
    k_rows = tl.load(places + group * 4 + 3)
    return q_start, q_rows, k_start, k_rows


@triton.jit
def rows(start, row, head, token_stride, head_stride):
    """Return the memory offset of each row of a tile, in int64 because large batches exceed 2^31."""
    return (start + row).to(tl.int64) * token_stride + head.to(tl.int64) * head_stride


@triton.jit
def read(pointer, offsets, inside, WIDTH: tl.constexpr, PADDED: tl.constexpr):
    """Return [rows, PADDED], with zeros in rows that are not `inside` and in columns from WIDTH on."""
    channels = tl.arange(0, PADDED)
    mask = inside[:, None] & (channels < WIDTH)[None, :]
    return tl.load(pointer + offsets[:, None] + channels[None, :], mask=mask, other=0.0)


@triton.jit
def write(pointer, offsets, inside, values, WIDTH: tl.constexpr, PADDED: tl.constexpr):
    """Write a tile in the type of the memory. This is the inverse of `read`."""
    channels = tl.arange(0, PADDED)
    mask = inside[:, None] & (channels < WIDTH)[None, :]
    values = values.to(pointer.dtype.element_ty)
    tl.store(pointer + offsets[:, None] + channels[None, :], values, mask=mask)


@triton.jit
def owners(segments, start, rows, inside, OTHERWISE: tl.constexpr):
    """Return the segment of each row, or OTHERWISE for rows that are not `inside`."""
    return tl.load(segments + start + rows, mask=inside, other=OTHERWISE)


@triton.jit
def visible(q_segment, k_segment, queries, keys, back, ahead, BANDED: tl.constexpr):
    """Return whether a query sees a key. All arguments broadcast.

    `queries` and `keys` are rows of the group. BANDED means causal order or a window. Then both have one
    layout, so distances in the group equal distances in the segment.
    """
    seen = q_segment == k_segment
    if BANDED:
        seen = seen & (keys >= queries - back) & (keys <= queries + ahead)
    return seen


@triton.jit
def scores(left, right, seen, scale):
    """Return scaled products of `left` and `right`, times log2(e) for `exp2`, or -inf if not `seen`."""
    # Without this option, float32 would be multiplied as TF32, with 10 bits of mantissa.
    products = tl.dot(left, tl.trans(right), input_precision="ieee")
    return tl.where(seen, products * (scale * LOG2_E), float("-inf"))


@triton.jit
def head_state(seed, segment, head):
    """Return the hash state of `dropout.keep_mask` after seed, segment and head."""
    number = tl.load(seed)
    state = absorbed(absorbed(0, number), number >> 32)
    return absorbed(absorbed(state, segment), head)


@triton.jit
def query_state(seed, segment, head, positions, start, rows, inside):
    """Return the hash state of `dropout.keep_mask` for each query, before the key."""
    position = tl.load(positions + start + rows, mask=inside, other=0)
    return absorbed(head_state(seed, segment, head), position)


@triton.jit
def dropped(values, state, key_positions, threshold, amplified):
    """Return weights, or their gradients, after dropout. `state` is that of `query_state`."""
    keep = (absorbed(state, key_positions) >> 8).to(tl.int32) >= threshold
    return tl.where(keep, values * amplified, 0.0)


@triton.jit
def absorbed(state, word):
    """Return the next hash state of `dropout.keep_mask`."""
    mixed = state + word.to(tl.uint32) * GOLDEN + OFFSET
    mixed = (mixed ^ (mixed >> 16)) * MIX_1
    mixed = (mixed ^ (mixed >> 13)) * MIX_2
    return mixed ^ (mixed >> 16)
