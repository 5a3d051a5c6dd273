"""Queries, keys and values as columns of one, two or three projected matrices."""

from collections.abc import Iterable
from typing import NamedTuple

from torch import Tensor, split


class Heads(NamedTuple):
    """Number of heads, and channels of the keys (and queries) and of the values of a head."""

    number: int
    keys: int
    values: int


def parts_of(projections: Iterable[Tensor], heads: Heads) -> list[Tensor]:
    """Return queries, keys and values, each a view [tokens, heads, channels], of one to three matrices.

    One matrix holds queries, keys and values. Two hold queries, and keys with values. Three hold one each.
    """
    widths = [heads.keys, heads.keys, heads.values]
    parts: list[Tensor] = []
    for matrix in projections:
        columns: list[int] = []
        while sum(columns) < matrix.shape[1]:
            columns.append(heads.number * widths[len(parts) + len(columns)])
        parts += [by_head(part, heads.number) for part in split(matrix, columns, dim=1)]
    return parts


def by_head(x_TC: Tensor, heads: int) -> Tensor:
    """Return a view with the channels split into heads: [T, H x K] becomes [T, H, K]."""
    return x_TC.view(x_TC.shape[0], heads, x_TC.shape[1] // heads)
