"""What step-by-step decoding keeps: the keys and values of all tokens so far, and of the source.

A row is one hypothesis. The rows of one sentence are neighbours, as many in each sentence, and share the keys
and values of the source; each row has its own number of tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

BLOCK = 32
"""Room for tokens is made in blocks of this size."""


@dataclass(slots=True)
class SelfCache:
    """Keys [R, H, C, K] and values [R, H, C, V] of one layer's earlier tokens; `lengths` [R] of them."""

    keys: Tensor
    values: Tensor
    lengths: Tensor

    def append(self, key_RHK: Tensor, value_RHV: Tensor) -> None:
        """Write the next token of each row, behind its `lengths`."""
        rows = torch.arange(len(self.lengths), device=self.lengths.device)
        self.keys[rows, :, self.lengths] = key_RHK.to(self.keys.dtype)
        self.values[rows, :, self.lengths] = value_RHV.to(self.values.dtype)

    def seen(self, window: int) -> Tensor:
        """[R, C]: the tokens that the newest of each row attends to, itself included."""
        places_C = torch.arange(self.keys.shape[2], device=self.lengths.device)
        newest_R1 = self.lengths[:, None]
        seen_RC = places_C <= newest_R1
        return seen_RC & (places_C >= newest_R1 - window // 2) if window else seen_RC


@dataclass(slots=True)
class CrossCache:
    """Keys [B, H, S, K] and values [B, H, S, V] of one layer's source; which of them are real, [B, S]."""

    keys: Tensor
    values: Tensor
    seen: Tensor


@dataclass(slots=True)
class DecodingCache:
    """All that one batch of hypotheses needs to take its next step."""

    lengths: Tensor
    """[R], int64: how many tokens each row has so far."""

    layers: Sequence[tuple[SelfCache, CrossCache]]

    def make_room(self, longest: int) -> None:
        """Let every layer hold rows of `longest` tokens and one more."""
        for own, _ in self.layers:
            if missing := max(0, longest + 1 - own.keys.shape[2]):
                blocks = -(-missing // BLOCK) * BLOCK
                own.keys = torch.nn.functional.pad(own.keys, (0, 0, 0, blocks))
                own.values = torch.nn.functional.pad(own.values, (0, 0, 0, blocks))

    def advance(self) -> None:
        """Count the tokens that all layers have just written."""
        self.lengths += 1

    def take(self, rows: Tensor) -> None:
        """Keep `rows` [R], any of them more than once, in this order; each stays within its sentence."""
        self.lengths.copy_(self.lengths[rows])
        for own, _ in self.layers:
            own.keys, own.values = own.keys[rows], own.values[rows]
