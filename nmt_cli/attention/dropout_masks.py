"""The dropout mask of attention probabilities: a pure function, the same in every implementation.

The mask is a hash of (seed, key of the segment, head, query, key). A 32-bit state absorbs one word at a time,
mixed by the finaliser of MurmurHash3. So a kernel computes any element without the state of a random
generator. The backward pass computes the mask again instead of storing it.
"""

import torch
from torch import Tensor

from nmt_cli.attention.dropout_hash import GOLDEN, MIX_1, MIX_2, OFFSET

HASH_VALUES = 1 << 24


def threshold(probability: float) -> int:
    """Return the limit for a dropout probability. Hashes with upper 24 bits below the limit are dropped."""
    return round(probability * HASH_VALUES)


def keep_mask(
    seed: Tensor, segment: Tensor, head: Tensor, query: Tensor, key: Tensor, probability: float
) -> Tensor:
    """Return a mask that is False, for dropped attention weights, with this probability.

    `seed` is int64. The next four are int32 and broadcast. `segment` is the key of a segment in its layout.
    `query` and `key` are positions in the segment.
    """
    return shifted(hashed(seed, segment, head, query, key), 8) >= threshold(probability)


def hashed(seed: Tensor, *words: Tensor) -> Tensor:
    """Return the int32 hash of an int64 `seed` and of int32 `words`, which broadcast."""
    # int32 wraps around like uint32, for which PyTorch lacks operations.
    state = torch.zeros((), dtype=torch.int32, device=seed.device)
    for word in (_signed(seed & 0xFFFFFFFF), _signed(seed >> 32 & 0xFFFFFFFF), *words):
        # Each bit of the state depends on all bits of the state before and of the word.
        state = state + word * _wrapped(GOLDEN) + OFFSET
        state = (state ^ shifted(state, 16)) * _wrapped(MIX_1)
        state = (state ^ shifted(state, 13)) * _wrapped(MIX_2)
        state = state ^ shifted(state, 16)
    return state


def shifted(state: Tensor, bits: int) -> Tensor:
    """Shift int32 to the right by `bits`, and fill with zeros. The operator would copy the sign."""
    return state >> bits & ((1 << (32 - bits)) - 1)


def _wrapped(word: int) -> int:
    """Return the int32 with the bits of `word`, a uint32."""
    return word - (1 << 32) if word >> 31 else word


def _signed(word: Tensor) -> Tensor:
    """Return the int32 with the bits of `word`, an int64 from 0 to 2^32 - 1."""
    return torch.where(word >= 1 << 31, word - (1 << 32), word).to(torch.int32)
