"""The likeliest tokens after each hypothesis, by one pass over its logits in the precision that they have.

A program reads the row of one hypothesis, block by block. It sums up the softmax as it goes, and keeps the
best tokens so far: of most blocks none is among them, which a look at the block's highest entry tells.
"""

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 2048
"""Entries of the vocabulary that are read at a time."""

MOST_AT_ONCE = 8
"""Of them a thread reads as many in one go, where rows begin at multiples of that."""


def likeliest(
    logits_RV: Tensor, count: int, never_V: Tensor, never_R: Tensor, only_R: Tensor
) -> tuple[Tensor, Tensor]:
    """See `dispatch.likeliest`."""
    rows, entries = logits_RV.shape
    log_probs_RC = torch.empty(rows, count, dtype=torch.float32, device=logits_RV.device)
    tokens_RC = torch.empty(rows, count, dtype=torch.int64, device=logits_RV.device)
    never = never_V.view(torch.uint8)
    chosen = options(count, entries, logits_RV.stride(0))
    # Triton launches on the current device, whichever the tensors are on.
    with torch.cuda.device_of(logits_RV):
        kernel[(rows,)](
            *(logits_RV, never, never_R, only_R, log_probs_RC, tokens_RC),
            *(logits_RV.stride(0) // chosen["ALIGNED"], entries // chosen["ALIGNED"]),
            **chosen,
        )
    return log_probs_RC, tokens_RC


def options(count: int, entries: int, stride: int) -> dict[str, int]:
    """What the kernel is compiled for: rows of so many entries, each so far behind the one before."""
    return {
        "ALIGNED": math.gcd(entries, stride, MOST_AT_ONCE),
        "COUNT": count,
        "KEPT": triton.next_power_of_2(count),
        "BLOCK": min(BLOCK, triton.next_power_of_2(entries)),
    }


@triton.jit
def kernel(
    logits,
    never,
    never_row,
    only_row,
    log_probs,
    tokens,
    stride,
    entries,
    ALIGNED: tl.constexpr,
    COUNT: tl.constexpr,
    KEPT: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Write the best COUNT of each row, in order; the first of those that are equal comes first."""
    row = tl.program_id(0).to(tl.int64)
    # Multiplied here, so that the compiler knows what divides them.
    logits += row * (stride * ALIGNED)
    entries *= ALIGNED
    not_this, only = tl.load(never_row + row), tl.load(only_row + row)
    slot = tl.arange(0, KEPT)
    is_slot = slot < COUNT
    # What is not found yet is worse than all that may be found; of equal ones the last leaves first.
    best = tl.where(is_slot, float("-inf"), float("inf"))
    ids = entries + slot
    lowest = float("-inf")
    highest, total = float("-inf"), 0.0
    for start in range(0, entries, BLOCK):
        token = start + tl.arange(0, BLOCK)
        block = tl.load(logits + token, mask=token < entries, other=float("-inf")).to(tl.float32)
        top = tl.max(block, 0)
        higher = tl.maximum(highest, top)
        # Entries that are all -inf so far: -inf minus -inf would be nan.
        finite = tl.where(higher == float("-inf"), 0.0, higher)
        total = total * tl.exp(highest - finite) + tl.sum(tl.exp(block - finite), 0)
        highest = higher
        # As equal ones that come later stay out, the first of them are kept.
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
        here = tl.load(logits + only).to(tl.float32)
        best = tl.where(slot == 0, here, float("-inf"))
        ids = tl.where(slot == 0, only.to(tl.int32), entries + slot)
    best = tl.where(is_slot, best, float("-inf"))
    for place in range(COUNT):
        top = tl.max(best, 0)
        first = tl.min(tl.where(best == top, ids, 2 * entries + KEPT), 0)
        found = top > float("-inf")
        tl.store(log_probs + row * COUNT + place, tl.where(found, top - highest - tl.log(total), top))
        tl.store(tokens + row * COUNT + place, tl.where(found, first, 0).to(tl.int64))
        best = tl.where(ids == first, float("-inf"), best)
        ids = tl.where(ids == first, 2 * entries + KEPT, ids)
