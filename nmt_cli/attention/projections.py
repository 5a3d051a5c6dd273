"""Queries, keys and values as columns of one, two or three projected matrices."""

from collections.abc import Iterable
from typing import NamedTuple

from torch import Tensor, cat, split


class Heads(NamedTuple):
    """Number of heads, and channels of the keys (and queries) and of the values of a head."""

    number: int
    keys: int
    values: int


def parts_of(projections: Iterable[Tensor], heads: Heads) -> list[Tensor]:
    """Return queries, keys and values as views [tokens, heads, channels] of one to three matrices.

    - One matrix has all three side by side, as self-attention computes them.
    - Two have queries, and keys with values, as in attention to the source.
    - Three have one each.
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


def turned(projected_TC: Tensor, heads: Heads, waves_TK: Tensor) -> Tensor:
    """Return queries, keys and values with rotary positions: pairs of channels of queries and keys are turned
    by an angle.

    projected_TC: queries, keys and values of all heads side by side.
    waves_TK: for the angle of pair i, the sine in column 2i and the cosine in column 2i + 1. They decide
        the dtype of the computation.

    Channels i and i + K / 2 of a head are pair i.
    """
    ends = 2 * heads.number * heads.keys
    pairs = projected_TC[:, :ends].unflatten(1, (2 * heads.number, 2, heads.keys // 2))  # type: ignore[no-untyped-call]
    x_TGI, y_TGI = pairs.to(waves_TK.dtype).unbind(2)
    sin_T1I, cos_T1I = waves_TK[:, None, 0::2], waves_TK[:, None, 1::2]
    turned_TC = cat([x_TGI * cos_T1I - y_TGI * sin_T1I, y_TGI * cos_T1I + x_TGI * sin_T1I], 2).flatten(1)
    return cat([turned_TC.to(projected_TC.dtype), projected_TC[:, ends:]], 1)
