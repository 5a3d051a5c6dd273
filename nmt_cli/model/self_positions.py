"""Positions that act in self-attention: rotary positions, and T5's relative position bias."""

import math

import torch
from torch import Tensor, nn

from nmt_cli.model.config import ModelConfig
from nmt_cli.model.embedding import Sinusoids

BUCKETS, FARTHEST = 32, 128
"""Number of buckets of distances, and the distance from which all are in the last bucket, as in T5."""


class RelativeBias(nn.Module):
    """A learned bias of attention scores for each head and bucket of distances. A stack's layers share it."""

    def __init__(self, config: ModelConfig, *, causal: bool) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.empty(BUCKETS, config.heads).normal_(std=config.width**-0.5))
        self.causal = causal

    def forward(self, distances: Tensor) -> Tensor:
        """Return [..., H]: the bias for `distances`, each the position of a key minus that of its query."""
        out: Tensor = self.table[self.buckets(distances)]
        return out

    def whole(self, longest: int) -> Tensor:
        """Return the bias for each head and the distances 1 - `longest` to `longest` - 1, as
        `Options.bias_HD`."""
        out_DH: Tensor = self(torch.arange(1 - longest, max(longest, 1), device=self.table.device))
        return out_DH.T

    def buckets(self, distances: Tensor) -> Tensor:
        """Return the bucket of each distance, as in T5.

        In causal order, keys after the query have bucket 0. Otherwise they have the second half of the
        buckets. Half of the buckets of a direction have one distance each. The others have logarithmic ranges
        up to `FARTHEST`.
        """
        count = BUCKETS if self.causal else BUCKETS // 2
        far = (-distances).clamp(min=0) if self.causal else distances.abs()
        near = count // 2
        # In fp32 and in this order, as in transformers, because rounding decides at the borders.
        logarithms = torch.log(far.clamp(min=1).float() / near) / math.log(FARTHEST / near)
        shared = near + (logarithms * (count - near)).to(far.dtype)
        buckets = torch.where(far < near, far, shared.clamp(max=count - 1))
        return buckets if self.causal else buckets + (distances > 0) * count


SelfPositions = Sinusoids | RelativeBias
"""Sinusoids as wide as a head turn queries and keys (rotary positions), see `projections.turned`."""


def self_positions(config: ModelConfig, *, causal: bool) -> SelfPositions | None:
    """Return what the self-attention of an encoder, or of a causal decoder, needs for `config.positions`."""
    if config.positions == "rotary":
        return Sinusoids(config.d_k)
    needed = config.positions == "relative" and not (causal and config.decoder_history == "ssru")
    return RelativeBias(config, causal=causal) if needed else None
