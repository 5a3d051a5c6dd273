"""Embeddings of tokens, and of their positions in a sentence, which are added to them."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nmt_cli.errors import UserError
from nmt_cli.model.config import ModelConfig
from nmt_cli.model.keyed_dropout import dropout
from nmt_cli.ragged import Layout

WAVELENGTH = 10_000
FIRST_ROWS = 1024
"""Positions in the first table of sinusoids."""


def sinusoids(count: int, width: int, kind: str = "sinusoidal", first: int = 0) -> Tensor:
    """Return [count, width]: sines in the even channels, cosines in the odd ones, from position `first` on.

    `kind` is the setting `positions`. "marian" has other frequencies than the paper's "sinusoidal".
    """
    # In fp32, the angles of late positions would be inexact.
    positions = torch.arange(first, first + count, dtype=torch.float64)[:, None]
    slowest = width // 2 - 1 if kind == "marian" else width // 2
    angles = positions / WAVELENGTH ** (torch.arange(width // 2, dtype=torch.float64) / slowest)
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1).float()


class Sinusoids(nn.Module):
    """Sinusoidal positions for any length, in a table that grows when needed."""

    def __init__(self, width: int, kind: str = "sinusoidal", first: int = 0) -> None:
        super().__init__()
        self.options = width, kind, first
        self.table: Tensor
        with torch.device("cpu"):  # also if the other weights are created on "meta", without memory
            self.register_buffer("table", sinusoids(FIRST_ROWS, *self.options), persistent=False)

    def forward(self, positions: Tensor, longest: int) -> Tensor:
        """Return [..., width] for `positions`, all of which are less than `longest`."""
        return self.table_for(positions, longest)[positions]

    def table_for(self, positions: Tensor, longest: int) -> Tensor:
        """Return `self.table`. If it has less than `longest` rows, first extend it to 2 x `longest` rows."""
        table = self.table
        if longest > table.shape[0]:
            # Twice the size that is needed, so that it grows rarely. Another thread may replace it at once.
            self.table = table = sinusoids(2 * longest, *self.options).to(table)
        return table


class LearnedPositions(nn.Module):
    """A learned vector for each of a fixed number of positions."""

    def __init__(self, count: int, width: int) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.empty(count, width).normal_(std=width**-0.5))

    def forward(self, positions: Tensor, longest: int) -> Tensor:
        """Return [..., width] for `positions`, all below `longest`. Raise `UserError` if one has no
        vector."""
        return self.table_for(positions, longest)[positions]

    def table_for(self, positions: Tensor, longest: int) -> Tensor:
        """Return the table. Raise `UserError` if one of `positions` is not in it.

        If `longest` shows that all are, `positions` are not read, because reading them would wait for the
        device.
        """
        count = self.table.shape[0]
        # `longest` is known on the host. The maximum waits for the device, so it is rarely computed.
        if longest > count and (tokens := int(positions.max()) + 1) > count:
            raise UserError(
                f"a sentence has {tokens} tokens, but the model has only {count} positions (model.longest). "
                "Leave longer sentences out, or train a model with more positions."
            )
        return self.table


def embedding_matrix(vocabulary: int, width: int) -> nn.Parameter:
    """Create a matrix [vocabulary, width] of normal random numbers with the deviation 1 / sqrt(width)."""
    return nn.Parameter(torch.empty(vocabulary, width).normal_(std=width**-0.5))


class Embedding(nn.Module):
    """The input of a stack: sqrt(D) x embedding + position, then dropout. The matrix may be shared. Rotary
    and relative positions are not added, as they act in self-attention."""

    def __init__(self, config: ModelConfig, matrix_VD: nn.Parameter) -> None:
        super().__init__()
        self.matrix, self.scale = matrix_VD, config.width**0.5 if config.scale_embeddings else 1.0
        self.drop = config.residual_dropout
        self.positions: LearnedPositions | Sinusoids | None = None
        if config.positions == "learned":
            self.positions = LearnedPositions(config.longest, config.width)
        elif config.positions in ("sinusoidal", "marian"):
            self.positions = Sinusoids(config.width, config.positions, config.first_position)

    def forward(
        self,
        tokens: Tensor,
        positions: Tensor,
        longest: int,
        zeroed: Tensor | None = None,
        layout: Layout | None = None,
    ) -> Tensor:
        """Return [..., D] for token ids of any shape.

        longest: more than each of `positions`.
        zeroed: where True, the embedding of the token is zeros, so that only the position is left.
        layout: needed in training only. Then `tokens` are [T], and it has their segments.
        """
        vectors = F.embedding(tokens, self.matrix) * self.scale
        if zeroed is not None:
            vectors = vectors.masked_fill(zeroed[..., None], 0.0)
        if self.positions:
            vectors = vectors + self.positions(positions, longest)
        return dropout(vectors, self.drop, self.training, layout)
