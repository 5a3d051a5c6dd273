"""Queries, keys and values as projections give them: side by side in the columns of few matrices."""

from collections.abc import Iterable
from typing import NamedTuple

from torch import Tensor, split


class Heads(NamedTuple):
    """How many heads there are, and the channels of each one's keys (and queries) and values."""

    number: int
    keys: int
    values: int


def parts_of(projections: Iterable[Tensor], heads: Heads) -> list[Tensor]:
    """Views of queries, keys and values, each [tokens, heads, channels].

    They are side by side, in this order, in one matrix (attention to itself), in two (queries, and what the
    others offer) or in three.
    """
    widths = [heads.keys, heads.keys, heads.values]
    parts: list[Tensor] = []
    for matrix in projections:
        here: list[int] = []
        while sum(here) < matrix.shape[1]:
            here.append(heads.number * widths[len(parts) + len(here)])
        parts += [_by_head(part, heads.number) for part in split(matrix, here, dim=1)]
    return parts


def _by_head(part_TC: Tensor, heads: int) -> Tensor:
    tokens, channels = part_TC.shape
    return part_TC.view(tokens, heads, channels // heads)
