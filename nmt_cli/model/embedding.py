"""Ids to vectors: embeddings scaled by the root of the width, plus positions."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nmt_cli.model.config import ModelConfig
from nmt_cli.model.dropout import dropout
from nmt_cli.model.positions import POSITIONS
from nmt_cli.runtime.devices import autocast_dtype


def embedding_matrix(vocabulary: int, width: int) -> nn.Parameter:
    """[vocabulary, width], so that it serves as output projection too without a change of scale."""
    return nn.Parameter(torch.empty(vocabulary, width).normal_(std=width**-0.5))


class Embedding(nn.Module):
    """The first thing in each stack; the matrix may be another stack's or the output projection's."""

    def __init__(self, config: ModelConfig, matrix_VD: nn.Parameter) -> None:
        super().__init__()
        self.matrix, self.scale = matrix_VD, config.width**0.5
        self.drop = config.embedding_dropout
        self.positions = POSITIONS[config.positions](config)
        self.narrow = config.residual_stream == "bf16"

    def forward(self, tokens: Tensor, positions: Tensor, longest: int, blank: Tensor | None = None) -> Tensor:
        """[..., D] for ids of any shape, at `positions` that are less than `longest`.

        Where `blank` is true, zeros take the place of the token's own vector.
        """
        vectors = F.embedding(tokens, self.matrix) * self.scale
        if blank is not None:
            vectors = vectors.masked_fill(blank[..., None], 0.0)
        out = dropout(vectors + self.positions(positions, longest), self.drop, self.training)
        return out.to(torch.bfloat16) if self.narrow and autocast_dtype(out.device) == torch.bfloat16 else out
