"""The likeliest tokens of each row by a Triton kernel, in one pass over logits of any precision.

A program reads the logits of one row, block by block. It accumulates the softmax and the best tokens so far.
The highest entry of most blocks is not among the best, so these need no more work. The reference is
`dispatch.plain_likeliest`. Legend: R rows, V entries, C = COUNT tokens of a row. Capitals are compile-time
constants.
"""

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 2048
"""Maximum number of entries in a block."""

MAX_ALIGNED = 8
"""Maximum number of entries that a thread reads at once. Rows must start at multiples of it."""


def likeliest(
    logits_RV: Tensor, count: int, never_V: Tensor, never_R: Tensor, only_R: Tensor
) -> tuple[Tensor, Tensor]:
    """Return log-probabilities and tokens. Arguments and result are those of `dispatch.likeliest`."""
    rows, entries = logits_RV.shape
    log_probs_RC = torch.empty(rows, count, dtype=torch.float32, device=logits_RV.device)
    tokens_RC = torch.empty(rows, count, dtype=torch.int64, device=logits_RV.device)
    never = never_V.view(torch.uint8)
    constants = options(count, entries, logits_RV.stride(0))
    # Triton launches on the current device, even if the tensors are on another.
    with torch.cuda.device_of(logits_RV):
        kernel[(rows,)](
            *(logits_RV, never, never_R, only_R, log_probs_RC, tokens_RC),
            *(logits_RV.stride(0) // constants["ALIGNED"], entries // constants["ALIGNED"]),
            **constants,
        )
    return log_probs_RC, tokens_RC


def options(count: int, entries: int, stride: int) -> dict[str, int]:
    """Return the compile-time constants for rows of `entries` entries at the distance `stride`."""
    return {
        "ALIGNED": math.gcd(entries, stride, MAX_ALIGNED),
        "COUNT": count,
        "SLOTS": triton.next_power_of_2(count),
        "BLOCK": min(BLOCK, triton.next_power_of_2(entries)),
    }


@triton.jit
def kernel(
    logits, never, never_row, only_row, log_probs, tokens, stride, entries,
    ALIGNED: tl.constexpr, COUNT: tl.constexpr, SLOTS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Write the COUNT best log-probabilities of each row [R, C], best first, and their tokens.

    Equal entries keep their order. `never`, `never_row` and `only_row` are those of `dispatch.likeliest`.
    `stride` and `entries` are divided by ALIGNED.
    """
    row = tl.program_id(0).to(tl.int64)
    # Multiplied here, so that the compiler knows that ALIGNED divides them.
    logits += row * (stride * ALIGNED)
    entries *= ALIGNED
    not_this, only = tl.load(never_row + row), tl.load(only_row + row)
    slot = tl.arange(0, SLOTS)
    is_slot = slot < COUNT
    # Empty slots are worse than any entry. Of equal entries, the last is replaced first.
    best = tl.where(is_slot, float("-inf"), float("inf"))
    ids = entries + slot
    lowest = float("-inf")
    highest, total = float("-inf"), 0.0
    for start in range(0, entries, BLOCK):
        token = start + tl.arange(0, BLOCK)
        block = tl.load(logits + token, mask=token < entries, other=float("-inf")).to(tl.float32)
        top = tl.max(block, 0)
        higher = tl.maximum(highest, top)
        # If all entries are -inf so far: -inf minus -inf would be nan.
        finite = tl.where(higher == float("-inf"), 0.0, higher)
        total = total * tl.exp(highest - finite) + tl.sum(tl.exp(block - finite), 0)
        highest = higher
        # Later equal entries are not inserted, so the first ones stay.
        while top > lowest:
            at = start + tl.argmax(block, 0)
            if (tl.load(never + at) == 0) & (at != not_this) & (only < 0):
                last = tl.max(tl.where(best == lowest, ids, -1), 0)
                leaves = (ids == last) & is_slot
                best = tl.where(leaves, top, best)
                ids = tl.where(leaves, at, ids)
                lowest = tl.min(best, 0)
            block = tl.where(token == at, float("-inf"), block)
            top = tl.max(block, 0)
    if only >= 0:
        forced = tl.load(logits + only).to(tl.float32)
        best = tl.where(slot == 0, forced, float("-inf"))
        ids = tl.where(slot == 0, only.to(tl.int32), entries + slot)
    best = tl.where(is_slot, best, float("-inf"))
    for rank in range(COUNT):
        top = tl.max(best, 0)
        first = tl.min(tl.where(best == top, ids, 2 * entries + SLOTS), 0)
        exists = top > float("-inf")
        tl.store(log_probs + row * COUNT + rank, tl.where(exists, top - highest - tl.log(total), top))
        tl.store(tokens + row * COUNT + rank, tl.where(exists, first, 0).to(tl.int64))
        best = tl.where(ids == first, float("-inf"), best)
        ids = tl.where(ids == first, 2 * entries + SLOTS, ids)
