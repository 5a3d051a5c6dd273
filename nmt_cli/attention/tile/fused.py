"""What the attention kernels share: reading and writing a tile, its mask, its scores and its dropout."""

import triton
import triton.language as tl

from nmt_cli.attention import dropout

GOLDEN = tl.constexpr(dropout.GOLDEN)
OFFSET = tl.constexpr(dropout.OFFSET)
MIX_1 = tl.constexpr(dropout.MIX_1)
MIX_2 = tl.constexpr(dropout.MIX_2)
# The kernels' softmax is one of powers of 2, which is what the device has an instruction for.
LOG2_E = tl.constexpr(1.4426950408889634)


@triton.jit
def place(places, group):
    """Where a group's queries begin and how many there are, and the same for its keys."""
    q_start = tl.load(places + group * 4)
    q_rows = tl.load(places + group * 4 + 1)
    k_start = tl.load(places + group * 4 + 2)
    k_rows = tl.load(places + group * 4 + 3)
    return q_start, q_rows, k_start, k_rows


@triton.jit
def rows(start, row, head, token_stride, head_stride):
    """The offset in memory of each row of a tile; int64, since a large batch goes past 2^31."""
    return (start + row).to(tl.int64) * token_stride + head.to(tl.int64) * head_stride


@triton.jit
def read(pointer, offsets, inside, WIDTH: tl.constexpr, PADDED: tl.constexpr):
    """[rows, PADDED], zeros in rows that are not inside and in columns from WIDTH on."""
    channels = tl.arange(0, PADDED)
    mask = inside[:, None] & (channels < WIDTH)[None, :]
    return tl.load(pointer + offsets[:, None] + channels[None, :], mask=mask, other=0.0)


@triton.jit
def write(pointer, offsets, inside, values, WIDTH: tl.constexpr, PADDED: tl.constexpr):
    """The inverse of `read`, in the type of the memory."""
    channels = tl.arange(0, PADDED)
    mask = inside[:, None] & (channels < WIDTH)[None, :]
    values = values.to(pointer.dtype.element_ty)
    tl.store(pointer + offsets[:, None] + channels[None, :], values, mask=mask)


@triton.jit
def owners(segments, start, rows, inside, OTHERWISE: tl.constexpr):
    """The segment that each row belongs to; rows that are not inside belong to OTHERWISE."""
    return tl.load(segments + start + rows, mask=inside, other=OTHERWISE)


@triton.jit
def visible(q_segment, k_segment, queries, keys, behind, ahead, BANDED: tl.constexpr):
    """True where a query sees a key, both rows of a group; all broadcast.

    What is in one segment is as far apart in it as it is in the group: where there is a band, queries and
    keys are of one layout.
    """
    seen = q_segment == k_segment
    if BANDED:
        seen = seen & (keys >= queries - behind) & (keys <= queries + ahead)
    return seen


@triton.jit
def scores(left, right, seen, scale):
    """Scaled products of `left` and `right`, times log2(e) for `exp2`; -inf where not `seen`."""
    # Without this option, float32 would be multiplied as TF32, of 10 bits.
    products = tl.dot(left, tl.trans(right), input_precision="ieee")
    return tl.where(seen, products * (scale * LOG2_E), float("-inf"))


@triton.jit
def head_state(seed, segment, head):
    """The state of the hash in `dropout.kept` after seed, segment and head, before query and key."""
    number = tl.load(seed)
    state = absorbed(absorbed(0, number), number >> 32)
    return absorbed(absorbed(state, segment), head)


@triton.jit
def query_state(seed, segment, head, positions, start, rows, inside):
    """The state of the hash in `dropout.kept` of each query, before the key."""
    position = tl.load(positions + start + rows, mask=inside, other=0)
    return absorbed(head_state(seed, segment, head), position)


@triton.jit
def dropped(values, state, key_positions, threshold, amplified):
    """Weights, or their gradients, after dropout with the mask of `dropout.kept`; see `query_state`."""
    kept = (absorbed(state, key_positions) >> 8).to(tl.int32) >= threshold
    return tl.where(kept, values * amplified, 0.0)


@triton.jit
def absorbed(state, word):
    """The next state of the hash in `dropout.kept`."""
    mixed = state + word.to(tl.uint32) * GOLDEN + OFFSET
    mixed = (mixed ^ (mixed >> 16)) * MIX_1
    mixed = (mixed ^ (mixed >> 13)) * MIX_2
    return mixed ^ (mixed >> 16)
