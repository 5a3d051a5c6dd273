"""The plan of the fused kernels: groups of neighbouring segments that share a tile.

A tile is the block of queries or keys that one program of a kernel computes at once.
"""

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
"""Maximum rows, in queries and in keys, of small and of medium groups. Neighbouring segments share small
groups. A longer segment is a medium or large group alone."""


@dataclass(frozen=True, slots=True)
class Groups:
    """Groups of neighbouring segments. The queries and keys of a segment may come from two layouts."""

    ranges: Tensor
    """[4 * segments], int32: first query, number of queries, first key and number of keys of each group.

    Small groups come first, then medium, large and empty ones. So the size depends only on the number of
    segments. The tensor is flat: `torch.compile` would confuse four segments with the four numbers.
    """

    counts: Tensor
    """[8], int32, on the host: first and end of the small, of the medium and of the large groups, as indices.
    Then the maximum number of queries and of keys of a group."""

    @classmethod
    def of(cls, q_starts: NDArray[np.int32], k_starts: NDArray[np.int32]) -> Groups:
        """Return the groups of segments whose queries and keys begin at `q_starts` and `k_starts`.

        Neighbours with at most 64 queries and 64 keys together are a group. A larger segment is a group
        alone.
        """
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
        ranges = np.zeros((segments, 2, 2), dtype=np.int32)
        ranges[: len(order), :, 0], ranges[: len(order), :, 1] = starts_G2[order], rows_G2[order]
        sums = [0, *np.bincount(kinds_G, minlength=len(ROWS) + 1).cumsum().tolist()]
        counts = [*chain(*pairwise(sums)), *rows_G2.max(0, initial=0).tolist()]
        return cls(torch.from_numpy(ranges.reshape(-1)), torch.tensor(counts, dtype=torch.int32))

    def changed(self, change: Callable[[Tensor], Tensor]) -> Groups:
        """Return the groups with `change` applied to `ranges`, the tensor that belongs on the device."""
        return replace(self, ranges=change(self.ranges))


def grouped(layout: Layout, partner: Layout | None = None) -> Layout:
    """Return `layout` with its `groups` and, with `partner`, the layout of keys, its `pair_groups`."""
    starts, pairs = starts_of(layout.lengths.numpy()), None
    if partner:
        pairs = Groups.of(starts, starts_of(partner.lengths.numpy()))
    planned = replace(layout, groups=Groups.of(starts, starts), pair_groups=pairs)
    return planned.to(layout.starts.device)


def groups_of(q: Layout, k: Layout) -> Groups:
    """Return the groups of queries `q` with keys `k`.

    In self-attention, where both layouts share one tensor `starts`, these are `q.groups`. In attention to
    another sequence, these are `q.pair_groups`. Groups that `q` does not store are computed.
    """
    to_itself = q.starts is k.starts
    groups = q.groups if to_itself else q.pair_groups
    if groups is None:
        planned = grouped(q, k)
        groups = planned.groups if to_itself else planned.pair_groups
    assert isinstance(groups, Groups)
    return groups
