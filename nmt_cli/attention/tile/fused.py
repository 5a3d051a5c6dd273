"""What all attention kernels do with a tile: read it, write it, and tell which of its elements count."""

import triton
import triton.language as tl

from nmt_cli.attention import dropout

GOLDEN = tl.constexpr(dropout.GOLDEN)
OFFSET = tl.constexpr(dropout.OFFSET)
MIX_1 = tl.constexpr(dropout.MIX_1)
MIX_2 = tl.constexpr(dropout.MIX_2)
LOG2_E = tl.constexpr(1.4426950408889634)


@triton.jit
def bounds(q_starts, k_starts, segment):
    """Where a segment's queries begin and how many there are, and the same for its keys."""
    q_start = tl.load(q_starts + segment)
    k_start = tl.load(k_starts + segment)
    q_length = tl.load(q_starts + segment + 1) - q_start
    k_length = tl.load(k_starts + segment + 1) - k_start
    return q_start, q_length, k_start, k_length


@triton.jit
def rows(start, tokens, head, token_stride, head_stride):
    """Where the rows of a tile lie in memory: past 2^31 in a large batch."""
    return (start + tokens).to(tl.int64) * token_stride + head.to(tl.int64) * head_stride


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
def visible(queries, keys, q_length, k_length, behind, ahead, BANDED: tl.constexpr):
    """True where a query of the segment sees a key; the numbers broadcast."""
    seen = (queries < q_length) & (keys < k_length)
    if BANDED:
        seen = seen & (keys >= queries - behind) & (keys <= queries + ahead)
    return seen


@triton.jit
def scores(left, right, seen, scale):
    """Scores to base 2, of queries and keys or of keys and queries; -inf where they are not seen."""
    products = tl.dot(left, tl.trans(right), input_precision="ieee")
    return tl.where(seen, products * (scale * LOG2_E), float("-inf"))


@triton.jit
def head_state(seed, segment, head):
    """What the hash of `dropout.kept` has absorbed before queries and keys."""
    number = tl.load(seed)
    state = _absorbed(_absorbed(0, number), number >> 32)
    return _absorbed(_absorbed(state, segment), head)


@triton.jit
def dropped(values, state, queries, keys, threshold, amplified, DROPOUT: tl.constexpr):
    """What dropout makes of weights or their gradients: the mask is that of `dropout.kept`, to the bit."""
    if DROPOUT:
        state = _absorbed(_absorbed(state, queries), keys)
        values = tl.where((state >> 8).to(tl.int32) >= threshold, values * amplified, 0.0)
    return values


@triton.jit
def _absorbed(state, word):
    mixed = state + word.to(tl.uint32) * GOLDEN + OFFSET
    mixed = (mixed ^ (mixed >> 16)) * MIX_1
    mixed = (mixed ^ (mixed >> 13)) * MIX_2
    return mixed ^ (mixed >> 16)
