"""Token embeddings, scaled by the square root of the width, plus positional encodings."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nmt_cli.model.config import ModelConfig
from nmt_cli.model.dropout import dropout
from nmt_cli.model.positions import positions_of
from nmt_cli.runtime.devices import autocast_dtype


def embedding_matrix(vocabulary: int, width: int) -> nn.Parameter:
    """Create a matrix [vocabulary, width] of normal random numbers with the deviation 1 / sqrt(width)."""
    return nn.Parameter(torch.empty(vocabulary, width).normal_(std=width**-0.5))


class Embedding(nn.Module):
    """The input of a stack: sqrt(D) x embedding + position, then dropout. The matrix may be shared."""

    def __init__(self, config: ModelConfig, matrix_VD: nn.Parameter) -> None:
        super().__init__()
        self.matrix, self.scale = matrix_VD, config.width**0.5
        self.drop = config.embedding_dropout
        self.positions = positions_of(config)
        self.narrow = config.residual_stream == "bf16"

    def forward(
        self, tokens: Tensor, positions: Tensor, longest: int, zeroed: Tensor | None = None
    ) -> Tensor:
        """Return [..., D] for token ids of any shape. All `positions` are less than `longest`.

        If `zeroed` is True for a token, its embedding is zeros, so that only the position is left. If
        `residual_stream` is "bf16", the result is bf16 under autocast to bf16.
        """
        vectors = F.embedding(tokens, self.matrix) * self.scale
        if zeroed is not None:
            vectors = vectors.masked_fill(zeroed[..., None], 0.0)
        out = dropout(vectors + self.positions(positions, longest), self.drop, self.training)
        return out.to(torch.bfloat16) if self.narrow and autocast_dtype(out.device) == torch.bfloat16 else out
