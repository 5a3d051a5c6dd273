"""Attention of a few new tokens over keys and values that are kept from step to step.

B sentences have N places for hypotheses each; place n of sentence b has number b x N + n. R rows are the
newest tokens of the hypotheses at places in use. All places of a sentence share its keys [B, H, M, K] and
values [B, H, M, V], and each sees some of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from types import ModuleType
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

ROUND = 8
"""The number of rows, where there are more, is rounded up to a multiple of this: each new number costs some
preparation, and among a few each row costs more than that."""


@cache
def kernels() -> ModuleType | None:
    """The kernels for a core of the processor, where Numba is installed; the first time it compiles them."""
    try:
        from nmt_cli.attention import compiled
    except (ImportError, OSError, RuntimeError):  # not there, not whole, or without room for what it compiles
        return None
    return compiled


@dataclass(frozen=True, slots=True)
class Rows:
    """Where the rows stand."""

    to_places: Tensor
    """[R]: the place of each row; rows that only round their number up go to a place behind the last."""

    from_places: Tensor
    """The same, but that rows which are none take a copy of the first."""

    full: bool
    """Whether each place is a row, so that nothing needs to move."""

    shape: tuple[int, int]
    """B and N."""

    @staticmethod
    def at(places_R: Tensor, sentences: int, places: int) -> Rows:
        """At `places_R`, ascending, of so many sentences with so many places each."""
        extra = -len(places_R) % ROUND if len(places_R) > ROUND else 0
        return Rows(
            to_places=F.pad(places_R, (0, extra), value=sentences * places),
            from_places=torch.cat([places_R, places_R[:1].expand(extra)]),
            full=len(places_R) == sentences * places and not extra,
            shape=(sentences, places),
        )

    def spread(self, x_RHC: Tensor) -> Tensor:
        """[B, N, H, C]: rows at their places; anything at places that are not in use."""
        if not self.full:
            everywhere = x_RHC.new_empty(self.shape[0] * self.shape[1] + 1, *x_RHC.shape[1:])
            x_RHC = everywhere.index_copy_(0, self.to_places, x_RHC)[:-1]
        return x_RHC.view(*self.shape, *x_RHC.shape[1:])

    def gathered(self, x_BNHC: Tensor) -> Tensor:
        """[R, H x C]: the inverse."""
        x_PC = x_BNHC.reshape(self.shape[0] * self.shape[1], -1)
        return x_PC if self.full else x_PC.index_select(0, self.from_places)


class Seen(Protocol):
    """What each row sees of what is kept."""

    def attend(self, query_RHK: Tensor, keys_BHMK: Tensor, values_BHMV: Tensor) -> Tensor:
        """[R, H x V]: what that makes for each row."""


@dataclass(frozen=True, slots=True)
class Paths:
    """Each row goes from key to key that it sees, in a compiled kernel."""

    sentences_R: NDArray[np.int64]
    nodes_RM: NDArray[np.int32]
    counts_R: NDArray[np.int32]
    """How many of the nodes there are."""

    compiled: ModuleType

    @staticmethod
    def of(rows: Rows, seen_BNM: Tensor, compiled: ModuleType) -> Paths:
        """As `seen_BNM` has it."""
        seen_BNM = seen_BNM.expand(*rows.shape, -1)
        places = rows.from_places.numpy()
        nodes = np.empty((len(places), seen_BNM.shape[2]), np.int32)
        counts = np.empty(len(places), np.int32)
        compiled.list_nodes(seen_BNM.numpy(), places, nodes, counts)
        return Paths(places // rows.shape[1], nodes, counts, compiled)

    def attend(self, query_RHK: Tensor, keys_BHMK: Tensor, values_BHMV: Tensor) -> Tensor:
        """See `Seen`."""
        mixed_RHV = torch.empty(*query_RHK.shape[:2], values_BHMV.shape[3])
        arrays = [_array(x) for x in (query_RHK.float(), keys_BHMK, values_BHMV, mixed_RHV)]
        self.compiled.attend(*arrays, self.sentences_R, self.nodes_RM, self.counts_R)
        return mixed_RHV.flatten(1).to(query_RHK.dtype)


def _array(x: Tensor) -> NDArray[np.generic]:
    x = x.detach()
    array: NDArray[np.generic] = (x.view(torch.uint16) if x.dtype == torch.bfloat16 else x).numpy()
    return array


@dataclass(frozen=True, slots=True)
class Masked:
    """Each row looks at all keys, and a very negative number hides those that it does not see."""

    rows: Rows
    bias: Tensor
    """[B, 1, N, M], or N is 1 for all places: 0 for what is seen, very negative for the rest."""

    parts: Sequence[tuple[slice, int]]
    """Sentences, and how many of their keys at most are seen: all these are among the first so many."""

    @staticmethod
    def of(rows: Rows, seen_BNM: Tensor, dtype: torch.dtype, part: int) -> Masked:
        """As `seen_BNM` has it, for `part` sentences at a time; 0 for all of them."""
        sentences, _, nodes = seen_BNM.shape
        bias = torch.zeros(seen_BNM.shape, dtype=dtype, device=seen_BNM.device)
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


def mean_weights(rows: Rows, query_RHK: Tensor, keys_BHMK: Tensor, seen_BM: Tensor) -> Tensor:
    """[B, N, M]: what each place weighs what it sees with, the mean of the heads; 0 at places not in use."""
    query_BHNK = rows.spread(query_RHK.float() * query_RHK.shape[-1] ** -0.5).transpose(1, 2)
    scores_BHNM = query_BHNK @ keys_BHMK.float().mT
    weights_BHNM = scores_BHNM.masked_fill(~seen_BM[:, None, None], -torch.inf).softmax(-1)
    in_use = seen_BM.new_zeros(rows.shape[0] * rows.shape[1] + 1).index_fill(0, rows.to_places, True)
    return weights_BHNM.mean(1).masked_fill(~in_use[:-1].view(*rows.shape, 1), 0.0)
