"""Which attention probabilities are dropped: a pure function, so that every implementation drops the same.

A 32-bit state absorbs (seed, segment, head, query, key), one word at a time, each with the finaliser of
MurmurHash3. A kernel can repeat this anywhere, without a generator's state and in any order.
"""

import torch
from torch import Tensor

GOLDEN, OFFSET = 0x9E3779B1, 0x7F4A7C15
MIX_1, MIX_2 = 0x85EBCA6B, 0xC2B2AE35
CHANCES = 1 << 24


def threshold(probability: float) -> int:
    """An element is kept where the upper 24 bits of its state are no less than this."""
    return round(probability * CHANCES)


def kept(
    seed: Tensor, segment: Tensor, head: Tensor, query: Tensor, key: Tensor, probability: float
) -> Tensor:
    """True where the probability of `key` for `query` stays; int32 numbers that broadcast, and an int64."""
    state = torch.zeros((), dtype=torch.int32, device=seed.device)
    for word in (_signed(seed & 0xFFFFFFFF), _signed(seed >> 32 & 0xFFFFFFFF), segment, head, query, key):
        state = _absorbed(state, word)
    return _shifted(state, 8) >= threshold(probability)


def _absorbed(state: Tensor, word: Tensor) -> Tensor:
    mixed = state + word * _wrapped(GOLDEN) + OFFSET
    mixed = (mixed ^ _shifted(mixed, 16)) * _wrapped(MIX_1)
    mixed = (mixed ^ _shifted(mixed, 13)) * _wrapped(MIX_2)
    return mixed ^ _shifted(mixed, 16)


def _shifted(state: Tensor, bits: int) -> Tensor:
    """A logical shift to the right, which signed integers lack."""
    return state >> bits & ((1 << (32 - bits)) - 1)


def _wrapped(word: int) -> int:
    """The int32 of the same bits."""
    return word - (1 << 32) if word >> 31 else word


def _signed(word: Tensor) -> Tensor:
    """The int32 of the same lower bits."""
    return torch.where(word >= 1 << 31, word - (1 << 32), word).to(torch.int32)
