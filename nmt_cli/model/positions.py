"""Where a token stands in its sentence, as a vector to add to its embedding."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from nmt_cli.errors import UserError
from nmt_cli.model.config import ModelConfig

WAVELENGTH = 10_000
FIRST_ROWS = 1024


def sinusoids(count: int, width: int, rule: str = "sinusoidal", first: int = 0) -> Tensor:
    """[count, width]: sines in the even channels, cosines in the odd ones, as the paper writes them.

    `rule` is the setting `positions`, and `first` the place of the first row.
    """
    # In double precision: in fp32 the angles of far positions lose the digits that matter.
    places = torch.arange(first, first + count, dtype=torch.float64)[:, None]
    slowest = width // 2 - 1 if rule == "marian" else width // 2
    angles = places / WAVELENGTH ** (torch.arange(width // 2, dtype=torch.float64) / slowest)
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1).float()


class Sinusoids(nn.Module):
    """Sinusoids for any length; the table grows as longer sentences come."""

    def __init__(self, width: int, rule: str = "sinusoidal", first: int = 0) -> None:
        super().__init__()
        self.rule = width, rule, first
        self.table: Tensor
        with torch.device("cpu"):  # also in a model that is built without memory, to be filled from a file
            self.register_buffer("table", sinusoids(FIRST_ROWS, *self.rule), persistent=False)

    def forward(self, positions: Tensor, longest: int) -> Tensor:
        """The vectors of `positions`, all of which are less than `longest`."""
        return self.enough_for(positions, longest)[positions]

    def enough_for(self, positions: Tensor, longest: int) -> Tensor:
        """A table that has them."""
        if longest > self.table.shape[0]:
            # Twice what is needed, or each longer sentence would make a table.
            self.table = sinusoids(2 * longest, *self.rule).to(self.table)
        return self.table


class LearnedPositions(nn.Module):
    """A learned vector for each position there may be."""

    def __init__(self, count: int, width: int) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.empty(count, width).normal_(std=width**-0.5))

    def forward(self, positions: Tensor, longest: int) -> Tensor:
        """The vectors of `positions`, all of which are less than `longest`, which may be rounded up."""
        return self.enough_for(positions, longest)[positions]

    def enough_for(self, positions: Tensor, longest: int) -> Tensor:
        """The table, which has them."""
        known = self.table.shape[0]
        # The first half is known on the host; the second one waits for the device.
        if longest > known and (tokens := int(positions.max()) + 1) > known:
            raise UserError(
                f"a sentence has {tokens} tokens, but the model has learned {known} positions (model.longest)"
                "; leave longer ones out, or train with more."
            )
        return self.table


def _sinusoids_of(config: ModelConfig) -> Sinusoids:
    return Sinusoids(config.width, config.positions, config.first_position)


POSITIONS: dict[str, Callable[[ModelConfig], Sinusoids | LearnedPositions]] = {
    "sinusoidal": _sinusoids_of,
    "marian": _sinusoids_of,
    "learned": lambda config: LearnedPositions(config.longest, config.width),
}
"""The kinds there are."""
