"""What step-by-step decoding keeps: B sentences, each with N places for hypotheses and a tree of M tokens.

A token that a hypothesis of a sentence has taken is a node of the sentence's tree, kept once however many
hypotheses go through it; a hypothesis is a path, the set of nodes from the first token to its newest. So
hypotheses are reordered by their paths, and no key or value moves. Nodes that no path goes through any more
are swept out when room gets short. A row is a place in use: place n of sentence b has number b x N + n.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

ROUND = 16
"""The number of rows is rounded up to a multiple of this: each new number costs some preparation."""

BLOCK = 8
"""Room in a tree is made for this many more steps at a time."""


@dataclass(slots=True)
class LayerCache:
    """Keys [B, H, M, K] and values [B, H, M, V] of the tree, and the same of the source's S tokens."""

    own_keys: Tensor
    own_values: Tensor
    source_keys: Tensor
    source_values: Tensor


@dataclass(frozen=True, slots=True)
class Step:
    """What all layers need to know of one step."""

    to_places: Tensor
    """[R]: the place of each row; rows that only round their number up go to a place behind the last."""

    from_places: Tensor
    """The same, but that rows which are none take a copy of the first."""

    full: bool
    """Whether each place is a row, so that nothing needs to move."""

    shape: tuple[int, int]
    """B and N."""

    used: int
    """Nodes before this step; it adds one for each place."""

    own_bias: Tensor
    """[B, 1, N, used + N]: 0 for what a place attends to, very negative for the rest."""

    source_bias: Tensor
    """[B, 1, 1, S]."""

    def spread(self, x_RHC: Tensor) -> Tensor:
        """[B, H, N, C]: rows at their places; nothing at places that are not in use."""
        if not self.full:
            everywhere = x_RHC.new_zeros(self.shape[0] * self.shape[1] + 1, *x_RHC.shape[1:])
            x_RHC = everywhere.index_copy_(0, self.to_places, x_RHC)[:-1]
        return x_RHC.view(*self.shape, *x_RHC.shape[1:]).transpose(1, 2)

    def gathered(self, x_BHNC: Tensor) -> Tensor:
        """[R, H x C]: the inverse."""
        x_PC = x_BHNC.transpose(1, 2).reshape(self.shape[0] * self.shape[1], -1)
        return x_PC if self.full else x_PC.index_select(0, self.from_places)


@dataclass(slots=True)
class DecodingCache:
    """All that a batch of hypotheses needs to take its next step."""

    layers: Sequence[LayerCache]

    source_seen: Tensor
    """[B, S]: which source tokens are real."""

    paths: Tensor
    """[B, N, M]: which nodes each hypothesis goes through; none where a place is not in use."""

    depths: Tensor
    """[B, M]: how many tokens come before a node."""

    ages: Tensor
    """[B]: how many tokens each hypothesis of a sentence has."""

    used: int = 0
    """Nodes so far, swept ones apart; as many in each sentence."""

    @property
    def places(self) -> int:
        """N."""
        return self.paths.shape[1]

    def step(self, rows_R: Tensor, window: int) -> Step:
        """Give each of `rows_R` a node for its next token, which it attends to as well."""
        sentences, places, room = self.paths.shape
        if self.used + places > room:
            self.take(torch.arange(sentences, device=self.paths.device))
        new = slice(self.used, self.used + places)
        own = torch.eye(places, dtype=torch.bool, device=self.paths.device)
        in_use = torch.zeros(sentences * places, dtype=torch.bool, device=self.paths.device)
        in_use[rows_R] = True
        self.paths[:, :, new] = own & in_use.view(sentences, places, 1)
        self.depths[:, new] = self.ages[:, None]
        seen = self.paths[:, :, : new.stop]
        if window:
            seen = seen & (self.depths[:, None, : new.stop] >= self.ages[:, None, None] - window // 2)
        dtype = self.layers[0].own_keys.dtype
        extra = -len(rows_R) % ROUND
        step = Step(
            to_places=F.pad(rows_R, (0, extra), value=sentences * places),
            from_places=F.pad(rows_R, (0, extra)),
            full=len(rows_R) == sentences * places and not extra,
            shape=(sentences, places),
            used=self.used,
            own_bias=_bias(seen, dtype)[:, None],
            source_bias=_bias(self.source_seen, dtype)[:, None, None],
        )
        self.used = new.stop
        return step

    def follow(self, parents_BN: Tensor, in_use_BN: Tensor) -> None:
        """Let each place go on from where its parent stands, a place of the same sentence."""
        index = parents_BN[:, :, None].expand(-1, -1, self.paths.shape[2])
        self.paths = self.paths.gather(1, index) & in_use_BN[:, :, None]

    def take(self, sentences: Tensor, others: DecodingCache | None = None) -> None:
        """Keep `sentences`, in this order, and of their trees what some hypothesis goes through; behind them
        come the sentences of `others`, which have taken no step yet."""
        alive = self.paths[sentences].any(1)
        live = int(alive.sum(1).max()) if alive.numel() else 0
        room = live + BLOCK * self.places
        wide = F.pad(alive, (0, max(0, room - alive.shape[1])))
        order = torch.sort(wide, dim=1, descending=True, stable=True).indices
        order = order[:, :room].clamp(max=alive.shape[1] - 1)
        behind = torch.arange(room, device=order.device) >= alive.sum(1, keepdim=True)
        paths = self.paths[sentences].gather(2, order[:, None].expand(-1, self.places, -1))
        depths = self.depths[sentences].gather(1, order)
        longest = int(self.source_seen[sentences].sum(1).max()) if len(sentences) else 0
        more = len(others.ages) if others else 0
        self.paths = F.pad(paths & ~behind[:, None], (0, 0, 0, 0, 0, more))
        self.depths = F.pad(depths, (0, 0, 0, more))
        self.ages, self.used = F.pad(self.ages[sentences], (0, more)), live
        for number, layer in enumerate(self.layers):
            other = others.layers[number] if others else None
            layer.own_keys = _nodes(layer.own_keys, sentences, order, more)
            layer.own_values = _nodes(layer.own_values, sentences, order, more)
            layer.source_keys = _kept(
                layer.source_keys[:, :, :longest], sentences, other.source_keys if other else None
            )
            layer.source_values = _kept(
                layer.source_values[:, :, :longest], sentences, other.source_values if other else None
            )
        others_seen = others.source_seen[:, None, :, None] if others else None
        seen = _kept(self.source_seen[:, None, :longest, None], sentences, others_seen)
        self.source_seen = seen[:, 0, :, 0]


def _bias(seen: Tensor, dtype: torch.dtype) -> Tensor:
    return torch.zeros(seen.shape, dtype=dtype, device=seen.device).masked_fill_(
        ~seen, torch.finfo(dtype).min
    )


def _nodes(x_BHMC: Tensor, sentences: Tensor, order_BM: Tensor, more: int) -> Tensor:
    """The nodes `order_BM` of `sentences`, and zeros for so many `more`."""
    _, heads, room, channels = x_BHMC.shape
    each_head = torch.arange(heads, device=sentences.device)
    first_BH1 = ((sentences[:, None] * heads + each_head) * room)[:, :, None]
    index_BHM = first_BH1 + order_BM[:, None]
    out_BHMC = x_BHMC.new_zeros(len(sentences) + more, heads, order_BM.shape[1], channels)
    taken = out_BHMC[: len(sentences)].view(-1, channels)
    torch.index_select(x_BHMC.reshape(-1, channels), 0, index_BHM.flatten(), out=taken)
    return out_BHMC


def _kept(x_BHSC: Tensor, sentences: Tensor, others_BHSC: Tensor | None) -> Tensor:
    """`sentences`, and behind them `others`; zeros fill up the shorter ones."""
    kept = x_BHSC.index_select(0, sentences)
    if others_BHSC is None:
        return kept
    shape = (len(sentences) + len(others_BHSC), kept.shape[1], max(kept.shape[2], others_BHSC.shape[2]))
    out_BHSC = kept.new_zeros(*shape, kept.shape[3])
    out_BHSC[: len(kept), :, : kept.shape[2]] = kept
    out_BHSC[len(kept) :, :, : others_BHSC.shape[2]] = others_BHSC
    return out_BHSC
