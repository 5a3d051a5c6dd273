"""Which attention probabilities are dropped: a pure function, so that every implementation drops the same.

The mask is a hash of (seed, segment, head, query, key): a 32-bit state takes in one word at a time and is
mixed by the finaliser of MurmurHash3. So a kernel gets any element of the mask without a random generator's
state, in any order, and the backward pass makes it again instead of storing it.
"""

import torch
from torch import Tensor

GOLDEN, OFFSET = 0x9E3779B1, 0x7F4A7C15
MIX_1, MIX_2 = 0x85EBCA6B, 0xC2B2AE35
CHANCES = 1 << 24


def threshold(probability: float) -> int:
    """What the upper 24 bits of an element's hash must reach for it to be kept."""
    return round(probability * CHANCES)


def kept(
    seed: Tensor, segment: Tensor, head: Tensor, query: Tensor, key: Tensor, probability: float
) -> Tensor:
    """True where the probability of `key` for `query` stays; all int32, broadcast, but `seed` int64."""
    # int32 wraps around as uint32 does, of which PyTorch has too few operations.
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
    """A shift to the right that fills up with zeros; that of signed integers copies the sign."""
    return state >> bits & ((1 << (32 - bits)) - 1)


def _wrapped(word: int) -> int:
    """The int32 of the same bits."""
    return word - (1 << 32) if word >> 31 else word


def _signed(word: Tensor) -> Tensor:
    """The int32 of the same lower bits."""
    return torch.where(word >= 1 << 31, word - (1 << 32), word).to(torch.int32)
