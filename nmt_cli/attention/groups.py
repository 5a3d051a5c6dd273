"""The plan of the fused kernels: which neighbouring segments share a tile."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import chain, pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nmt_cli.ragged import Layout, starts_of

ROWS = (64, 128)
"""Neighbouring segments share a group of at most the first number of rows in queries and in keys. A longer
segment is a group alone. Groups up to the second number of rows are counted apart from larger ones."""


@dataclass(frozen=True, slots=True)
class Groups:
    """Groups of neighbouring segments, or pairs of segments, that a kernel computes together."""

    places: Tensor
    """[4 * segments], int32: for each group the first query, the number of queries, the first key and the
    number of keys.

    Groups of at most `ROWS[0]` rows come first, then those of at most `ROWS[1]`, then larger ones. Empty
    groups follow, so that the size depends on the number of segments only. The tensor is flat because
    `torch.compile` would take four segments and four numbers for the same size."""

    counts: Tensor
    """[8], int32, on the host: first and end of the groups of at most `ROWS[0]` rows, of at most `ROWS[1]`
    rows, and of more. Then the maximum number of queries and of keys of a group.

    The counts may be upper bounds. So recorded launches can serve any batch of the same shape."""

    @classmethod
    def of(cls, q_starts: NDArray[np.int32], k_starts: NDArray[np.int32]) -> Groups:
        """Group segments, given by the starts of their queries and keys. The last start is the end of all."""
        segments = len(q_starts) - 1
        q_ends, k_ends = (x.searchsorted(x[:-1] + ROWS[0], "right") - 1 for x in (q_starts, k_starts))
        # The maximum gives a segment with too many rows its own group.
        ends = np.maximum(np.minimum(q_ends, k_ends), np.arange(1, segments + 1)).tolist()
        borders = [0]
        while borders[-1] < segments:
            borders.append(ends[borders[-1]])
        starts_G2 = np.stack((q_starts[borders], k_starts[borders]), 1)
        rows_G2 = np.diff(starts_G2, axis=0)
        kinds_G = np.searchsorted(ROWS, rows_G2.max(1), "left")
        order = kinds_G.argsort(kind="stable")
        places = np.zeros((segments, 2, 2), dtype=np.int32)
        places[: len(order), :, 0], places[: len(order), :, 1] = starts_G2[order], rows_G2[order]
        sums = [0, *np.bincount(kinds_G, minlength=len(ROWS) + 1).cumsum().tolist()]
        counts = [*chain(*pairwise(sums)), *rows_G2.max(0, initial=0).tolist()]
        return cls(torch.from_numpy(places.reshape(-1)), torch.tensor(counts, dtype=torch.int32))

    def changed(self, change: Callable[[Tensor], Tensor]) -> Groups:
        """Apply `change` to the tensor that belongs on the device. See `ragged.Plan`."""
        return replace(self, places=change(self.places))


def grouped(layout: Layout, partner: Layout | None = None) -> Layout:
    """Return `layout` with the groups of its segments, and of its segments with those of `partner`.

    `partner` is the layout of the keys that it attends to. A layout without groups gets them in every layer.
    """
    starts, pairs = starts_of(layout.lengths.numpy()), None
    if partner:
        pairs = Groups.of(starts, starts_of(partner.lengths.numpy()))
    planned = replace(layout, groups=Groups.of(starts, starts), pair_groups=pairs)
    return planned.to(layout.starts.device)


def groups_of(q: Layout, k: Layout) -> Groups:
    """Return the groups of queries and keys, from `q` if it has them."""
    to_itself = q.starts is k.starts
    groups = q.groups if to_itself else q.pair_groups
    if groups is None:
        planned = grouped(q, k)
        groups = planned.groups if to_itself else planned.pair_groups
    assert isinstance(groups, Groups)
    return groups
