"""Attention in a step of decoding: the newest token of each hypothesis over cached keys and values.

B sentences are searched at once, each with N places, one for each hypothesis that it may have at a time;
place n of sentence b has the number b x N + n. Some places are not in use; the newest tokens at the others
are the R rows of a step, in the order of their places. The cache of a sentence has M nodes, with keys [B, H,
M, K] and values [B, H, M, V], for all of its hypotheses: tokens that any of them has taken, or the source's.
A mask `seen_BNM` tells which of the nodes the row at a place attends to.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from nmt_cli.attention.projections import Heads
from nmt_cli.ragged import Layout
from nmt_cli.runtime.kernels.arrays import as_array
from nmt_cli.runtime.kernels.loading import compiled_kernels

ROUND = 8
"""Rows beyond this many are rounded up to a multiple of it: libraries prepare something for each new number
of rows, which costs more than the added rows do; among only a few, an added row would cost more."""


def kernels() -> ModuleType | None:
    """`compiled.py`, whose kernels compute in one thread of a CPU; None without Numba. The first call
    compiles."""
    return compiled_kernels("attention")


@dataclass(frozen=True, slots=True)
class Rows:
    """The places of a step's rows, and how values move between rows and places.

    Behind the R rows come dummy rows up to a multiple of `ROUND`; their results are never used.
    """

    to_places: Tensor
    """[R]: where `spread` puts each row; dummy rows go to an extra place behind the last one."""

    from_places: Tensor
    """[R]: where `gathered` takes each row from; dummy rows are copies of the first row."""

    full: bool
    """Whether every place is in use and has its row, so that nothing needs to move."""

    shape: tuple[int, int]
    """B and N."""

    @staticmethod
    def at(places_R: Tensor, sentences: int, places: int, rounded: bool = True) -> Rows:
        """Rows at the places `places_R`, which ascend, of so many sentences with so many places each; with no
        dummy rows unless they are `rounded` up."""
        extra = -len(places_R) % ROUND if rounded and len(places_R) > ROUND else 0
        shape, everywhere = (sentences, places), sentences * places
        if not extra:
            return Rows(places_R, places_R, len(places_R) == everywhere, shape)
        return Rows(
            to_places=F.pad(places_R, (0, extra), value=everywhere),
            from_places=torch.cat([places_R, places_R[:1].expand(extra)]),
            full=False,
            shape=shape,
        )

    def spread(self, x_RHC: Tensor) -> Tensor:
        """[B, N, H, C]: the rows at their places; places not in use hold arbitrary values."""
        if not self.full:
            everywhere = x_RHC.new_empty(self.shape[0] * self.shape[1] + 1, *x_RHC.shape[1:])
            x_RHC = everywhere.index_copy_(0, self.to_places, x_RHC)[:-1]
        return x_RHC.view(*self.shape, *x_RHC.shape[1:])

    def gathered(self, x_BNHC: Tensor) -> Tensor:
        """[R, H x C]: the inverse of `spread`, heads side by side."""
        x_PC = x_BNHC.reshape(self.shape[0] * self.shape[1], -1)
        return x_PC if self.full else x_PC.index_select(0, self.from_places)


class Seen(Protocol):
    """Which nodes each row of a step attends to; the same for all layers, so made once a step."""

    def attend(self, query_RHK: Tensor, keys_BHMK: Tensor, values_BHMV: Tensor) -> Tensor:
        """[R, H x V]: the attention of each row over the nodes that it sees."""


@dataclass(frozen=True, slots=True)
class Paths:
    """The nodes that each row sees as a list, which a compiled kernel follows; no other node is read."""

    sentences_R: NDArray[np.int64]
    """The sentence of each row."""

    nodes_RM: NDArray[np.int32]
    counts_R: NDArray[np.int32]
    """How many entries of each row of `nodes_RM` are set."""

    compiled: ModuleType
    """See `kernels`."""

    @staticmethod
    def of(rows: Rows, seen_BNM: Tensor, compiled: ModuleType) -> Paths:
        """The lists for `seen_BNM`, whose N may be 1 for all places."""
        seen_BNM = seen_BNM.expand(*rows.shape, -1)
        places = rows.from_places.numpy()
        nodes = np.empty((len(places), seen_BNM.shape[2]), np.int32)
        counts = np.empty(len(places), np.int32)
        compiled.list_nodes(seen_BNM.numpy(), places, nodes, counts)
        return Paths(places // rows.shape[1], nodes, counts, compiled)

    def attend(self, query_RHK: Tensor, keys_BHMK: Tensor, values_BHMV: Tensor) -> Tensor:
        """See `Seen`."""
        query_RC = query_RHK.flatten(1)
        arrays = [as_array(x) for x in (query_RC.float().contiguous(), keys_BHMK, values_BHMV)]
        return self._by(self.compiled.attend, arrays, query_RC, values_BHMV)

    def attend_newest(
        self, projected_RC: Tensor, nodes_RH: Tensor, keys_BHMK: Tensor, values_BHMV: Tensor
    ) -> Tensor:
        """As `attend`, once the keys and values of the rows are kept; see `dispatch.attend_newest`."""
        arrays = [as_array(x) for x in (projected_RC.float(), nodes_RH, keys_BHMK, values_BHMV)]
        return self._by(self.compiled.attend_newest, arrays, projected_RC, values_BHMV)

    def _by(
        self,
        kernel: Callable[..., None],
        arrays: Sequence[NDArray[np.generic]],
        x_RC: Tensor,
        values_BHMV: Tensor,
    ) -> Tensor:
        _, heads, _, width = values_BHMV.shape
        mixed_RC = np.empty((len(x_RC), heads * width), np.float32)
        kernel(*arrays, mixed_RC, self.sentences_R, self.nodes_RM, self.counts_R)
        return torch.from_numpy(mixed_RC).to(x_RC.dtype)


@dataclass(frozen=True, slots=True)
class Masked:
    """Scores of each row with all nodes, of which a mask hides those that the row does not see."""

    rows: Rows
    bias: Tensor
    """[B, 1, N, M], added to scores: 0 for what is seen, very negative for the rest; N may be 1 for all
    places."""

    parts: Sequence[tuple[slice, int]]
    """Runs of sentences to compute at a time, and how far: no sentence of the run sees a node from there
    on."""

    @staticmethod
    def of(rows: Rows, seen_BNM: Tensor, dtype: torch.dtype, part: int) -> Masked:
        """The mask for `seen_BNM`, and runs of `part` sentences; 0 for all at once."""
        sentences, _, nodes = seen_BNM.shape
        bias = torch.zeros(seen_BNM.shape, dtype=dtype, device=seen_BNM.device)
        # Not -inf: a place that is not in use sees nothing, and its softmax would be nan.
        bias.masked_fill_(~seen_BNM, torch.finfo(dtype).min)
        if not part or sentences <= part or not nodes:
            return Masked(rows, bias[:, None], [(slice(0, sentences), nodes)])
        last = (seen_BNM.any(1) * torch.arange(1, nodes + 1, device=seen_BNM.device)).amax(1).tolist()
        starts = range(0, sentences, part)
        parts = [(slice(i, i + part), max(1, *last[i : i + part])) for i in starts]
        return Masked(rows, bias[:, None], parts)

    def attend(self, query_RHK: Tensor, keys_BHMK: Tensor, values_BHMV: Tensor) -> Tensor:
        """See `Seen`."""
        query_BNHK = self.rows.spread(query_RHK * query_RHK.shape[-1] ** -0.5)
        mixed_BNHV = query_BNHK.new_empty(*query_BNHK.shape[:3], values_BHMV.shape[3])
        for part, longest in self.parts:
            keys = keys_BHMK[part, :, :longest].to(query_BNHK.dtype)
            values = values_BHMV[part, :, :longest].to(query_BNHK.dtype)
            scores_BHNM = query_BNHK[part].transpose(1, 2) @ keys.mT
            weights_BHNM = scores_BHNM.add_(self.bias[part, :, :, :longest]).softmax(-1)
            mixed_BNHV[part] = (weights_BHNM @ values).transpose(1, 2)
        return self.rows.gathered(mixed_BNHV)


def whole_segments(
    layout: Layout, heads: Heads, compiled: ModuleType
) -> tuple[Paths, Tensor, Tensor, Tensor]:
    """Return paths, nodes [T, H], and room for keys and values, for tokens that see their whole segment."""
    segments_T = layout.segments.long()
    firsts_TH = (segments_T[:, None] * heads.number + torch.arange(heads.number)) * layout.longest
    nodes_TM = np.tile(np.arange(layout.longest, dtype=np.int32), (len(segments_T), 1))
    paths = Paths(segments_T.numpy(), nodes_TM, layout.lengths.int()[segments_T].numpy(), compiled)
    room = len(layout.lengths), heads.number, layout.longest
    keys, values = torch.empty(*room, heads.keys), torch.empty(*room, heads.values)
    return paths, firsts_TH + layout.positions[:, None], keys, values


def attend_segments(projected_TC: Tensor, heads: Heads, layout: Layout, compiled: ModuleType) -> Tensor:
    """Return [T, H, V], the attention of each token over its whole segment, as compiled steps compute it."""
    paths, *room = whole_segments(layout, heads, compiled)
    return paths.attend_newest(projected_TC.contiguous(), *room).view(-1, heads.number, heads.values)


def mean_weights(rows: Rows, query_RHK: Tensor, keys_BHMK: Tensor, seen_BM: Tensor) -> Tensor:
    """[B, N, M]: what each place weighs what it sees with, the mean of the heads; 0 at places not in use."""
    query_BHNK = rows.spread(query_RHK.float() * query_RHK.shape[-1] ** -0.5).transpose(1, 2)
    scores_BHNM = query_BHNK @ keys_BHMK.float().mT
    weights_BHNM = scores_BHNM.masked_fill(~seen_BM[:, None, None], -torch.inf).softmax(-1)
    in_use = seen_BM.new_zeros(rows.shape[0] * rows.shape[1] + 1).index_fill(0, rows.to_places, True)
    return weights_BHNM.mean(1).masked_fill(~in_use[:-1].view(*rows.shape, 1), 0.0)
