"""What step-by-step decoding keeps: B sentences, each with N places for hypotheses and a tree of M tokens.

A token that a hypothesis of a sentence has taken is a node of the sentence's tree, kept once however many
hypotheses go through it; a hypothesis is a path, the set of nodes from the first token to its newest. So
hypotheses are reordered by their paths, and no key or value moves. A node that no path goes through any more
is free for the next token. A row is a place in use: place n of sentence b has number b x N + n.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from nmt_cli.attention.cached import Paths, Rows, Seen, mean_weights
from nmt_cli.attention.dispatch import attend_newest, follower, seen_by
from nmt_cli.attention.projections import Heads
from nmt_cli.ragged import Layout
from nmt_cli.runtime.kernels.loading import compiled_kernels

FIRST_STEPS = 8
"""Steps that a tree has room for at first."""

MORE_STEPS, MORE_STEPS_ALONE = 4, 32
"""Steps that room is made for where there is none left: in large batches it is most of the memory. A sentence
that is alone gets it for more, two for half as many, and so on: there it is time that counts."""

MORE_IN_ADVANCE = 4
"""Where nodes are made ready for several steps, there is room for so many times more."""

NO_WINDOW = 1 << 62
"""Tokens back that none is."""

NODES_ROUNDED_TO = 8
"""`DecodingCache.used` is rounded up to this where it is too small, so that it need not grow at each step."""


@dataclass(slots=True)
class LayerCache:
    """Keys [B, H, M, K] and values [B, H, M, V] of the tree, and the same of the source's S tokens."""

    own_keys: Tensor
    own_values: Tensor
    source_keys: Tensor
    source_values: Tensor

    states: Tensor | None = None
    """[B, N, D]: what each hypothesis is so far, where an SSRU sums it up; then the tree has no heads."""

    @property
    def kept(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The four above, which are replaced together."""
        return self.own_keys, self.own_values, self.source_keys, self.source_values

    @property
    def widths(self) -> tuple[int, int]:
        """Channels of a head's keys and values."""
        return self.source_keys.shape[3], self.source_values.shape[3]


@dataclass(frozen=True, slots=True)
class Step:
    """What all layers need to know of one step."""

    rows: Rows
    nodes_RH: Tensor
    """Where each row's token goes in [B x H x M], for each head; without the rows that only round up."""

    own: Seen
    source: Seen

    coverage: Tensor | None
    """[B, N, S]: where each layer adds how much attention it pays, if anybody asks."""

    source_seen: Tensor

    def cover(self, query_RHK: Tensor, keys_BHSK: Tensor) -> None:
        """Add what a layer weighs the source with, if anybody asks."""
        if self.coverage is not None:
            self.coverage.add_(mean_weights(self.rows, query_RHK, keys_BHSK, self.source_seen))

    def recalled(self, states_BND: Tensor) -> Tensor:
        """[R, D]: the state of each row's place."""
        return states_BND.flatten(0, 1).index_select(0, self.rows.from_places)

    def remember(self, x_RD: Tensor, states_BND: Tensor) -> None:
        """Put each row's state at its place."""
        count = len(self.nodes_RH)
        places_PD = states_BND.view(-1, states_BND.shape[2])
        places_PD.index_copy_(0, self.rows.to_places[:count], x_RD[:count])

    def attend_newest(self, projected_RC: Tensor, heads: Heads, cache: LayerCache) -> Tensor:
        """What each row gets of its path and its own token, whose key and value are kept."""
        kept = cache.own_keys, cache.own_values
        return attend_newest(projected_RC, heads, self.nodes_RH, *kept, self.own)


class WholeStep(Protocol):
    """Computes all layers for few rows at once. See `few_rows.FewRows`."""

    def can_encode(self, sentences: int, longest: int) -> bool:
        """Return whether it can encode `sentences` sentences of at most `longest` tokens."""

    def encode(self, source_S: Tensor, source: Layout) -> Tensor:
        """Return [S, D]. See `Transformer.encode`."""

    def fits(self, rows: int) -> bool:
        """Return whether `rows` rows are few enough."""

    def can_step(self, step: Step) -> bool:
        """Return whether it can compute this step."""

    def step(self, tokens_R: Tensor, cache: DecodingCache, step: Step, longest: int) -> Tensor:
        """Return [R, D]: the decoder's output. See `Transformer.step`."""

    def logits(self, decoded_RD: Tensor) -> Tensor:
        """Return [R, V]."""


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
    """All nodes are among the first so many, in each sentence."""

    ahead: int = 1
    """Steps for which nodes are made ready at a time; where they are more than one, all places are rows."""

    ready: int = 0
    """Steps for which they still are, whatever the hypotheses do: the host need not look."""

    coverage: Tensor | None = None
    """[B, N, S]: how much attention each source token has had in all, the sum of the layers."""

    listed: tuple[Tensor, NDArray[np.int64], Paths] | None = None
    """Of a step: `source_seen`, the places of its rows, and lists of what they saw of the source."""

    located: tuple[Tensor, Tensor, NDArray[np.int64]] | None = None
    """The first layer's own keys and those of the source, and the `addresses` at that time."""

    @property
    def places(self) -> int:
        """N."""
        return self.paths.shape[1]

    def step(self, rows_R: Tensor, window: int, dtype: torch.dtype) -> Step:
        """Give each of `rows_R` a node for its next token, which it attends to as well; `dtype` is that of
        what the model computes with."""
        rows = Rows.at(rows_R, len(self.paths), self.places, rounded=self.ahead == 1)
        own: Seen
        source: Seen
        if kernels := follower(rows, dtype):
            nodes_RH, own = self._taken(rows, len(rows_R), window, kernels)
            source = self._source_paths(rows, kernels)
        else:
            nodes_RH, seen = self._taken_anywhere(rows_R, window)
            own, source = (
                seen_by(rows, each, dtype, self.layers[0].widths)
                for each in (seen, self.source_seen[:, None])
            )
        return Step(
            rows=rows,
            nodes_RH=nodes_RH,
            own=own,
            source=source,
            coverage=self.coverage,
            source_seen=self.source_seen,
        )

    def _taken_anywhere(self, rows_R: Tensor, window: int) -> tuple[Tensor, Tensor]:
        """Nodes for the newest token of each row: where they are for each head, and which each place sees."""
        nodes_BN = self._free_nodes()
        sentences, places, room = self.paths.shape
        in_use = torch.zeros(sentences * places, dtype=torch.bool, device=self.paths.device)
        in_use.index_fill_(0, rows_R, True)
        # Where a place is not in use its node stays on no path, and is free again in the next step.
        self.paths.scatter_(2, nodes_BN[:, :, None], in_use.view(sentences, places, 1))
        self.depths.scatter_(1, nodes_BN, self.ages[:, None].expand_as(nodes_BN))
        seen = self.paths[:, :, : self.used]
        if window:
            seen = seen & (self.depths[:, None, : self.used] >= self.ages[:, None, None] - window // 2)
        heads = self.layers[0].own_keys.shape[1]
        each_head = torch.arange(heads, device=self.paths.device)
        first_RH = ((rows_R // places)[:, None] * heads + each_head) * room
        return first_RH + nodes_BN.flatten()[rows_R, None], seen

    def _taken(self, rows: Rows, count: int, window: int, kernels: ModuleType) -> tuple[Tensor, Paths]:
        """The same by a compiled kernel, for the first `count` rows; and lists of what all of them see."""
        places = rows.from_places.numpy()
        nodes_RH = np.empty((count, self.layers[0].own_keys.shape[1]), np.int64)
        counts = np.empty(len(places), np.int32)
        while True:
            seen = np.empty((len(places), self.used), np.int32)
            if kernels.take_nodes(*self.tree(window), places[:count], places, nodes_RH, seen, counts):
                break
            self.get_ready()
        self.ready = max(self.ready - 1, 0)
        return torch.from_numpy(nodes_RH), Paths(places // self.places, seen, counts, kernels)

    def tree(self, window: int) -> tuple[object, ...]:
        """What `attention.compiled.take_nodes` is told first."""
        behind = window // 2 + 1 if window else NO_WINDOW
        return self.paths.numpy(), self.depths.numpy(), self.ages.numpy(), self.used, behind

    def _source_paths(self, rows: Rows, kernels: ModuleType) -> Paths:
        """Lists of what all rows see of the source: those of the step before, if it had the same rows."""
        places = rows.from_places.numpy()
        if self.listed and self.listed[0] is self.source_seen and np.array_equal(self.listed[1], places):
            return self.listed[2]
        paths = Paths.of(rows, self.source_seen[:, None], kernels)
        self.listed = self.source_seen, places, paths
        return paths

    def reorder(self, parents_BN: Tensor, in_use_BN: Tensor) -> None:
        """Let each place go on from where its parent stands, a place of the same sentence."""
        looked_at = self.paths.device.type == "cpu" and self.ahead == 1
        if looked_at and (compiled := compiled_kernels("attention")):
            told = (each.contiguous().numpy() for each in (parents_BN, in_use_BN))
            compiled.follow(self.paths.numpy(), *told)
        else:
            self.paths = _of_parents(self.paths, parents_BN) & in_use_BN[:, :, None]
        if self.coverage is not None:
            self.coverage = _of_parents(self.coverage, parents_BN)
        for layer in self.layers:
            if layer.states is not None:
                layer.states = _of_parents(layer.states, parents_BN)

    def addresses(self) -> NDArray[np.int64]:
        """Where each layer's four tensors are; the same array as long as they are."""
        first = self.layers[0]
        if not (self.located and self.located[0] is first.own_keys and self.located[1] is first.source_keys):
            each = [[kept.data_ptr() for kept in layer.kept] for layer in self.layers]
            self.located = first.own_keys, first.source_keys, np.array(each)
        return self.located[2]

    def begin_coverage(self) -> None:
        """From now on note how much attention each source token gets; slower."""
        shape = (len(self.ages), self.places, self.source_seen.shape[1])
        self.coverage = torch.zeros(shape, device=self.paths.device)

    def mean_coverage(self) -> Tensor:
        """[B, N, S]: how much attention each source token has had in all, the mean of layers and heads."""
        assert self.coverage is not None
        return self.coverage / len(self.layers)

    def _free_nodes(self) -> Tensor:
        """[B, N]: for each place a node that no path goes through."""
        alive = self._alive() if self.ready else self.get_ready()
        self.ready -= 1
        # False sorts before True, so the nodes on no path come first.
        return alive.sort(dim=1, stable=True).indices[:, : self.places]

    def get_ready(self) -> Tensor:
        """Reserve nodes for the next steps, and wait for the device. Return [B, M]: the nodes on a path."""
        alive = self._alive()
        # All sentences have as many nodes as the one that needs most.
        live = int(alive.sum(1).max())
        needed = live + self.places * self.ahead
        if needed > self.used:
            if needed > self.paths.shape[2]:
                self._tidy(torch.arange(len(self.ages), device=self.paths.device), live)
            self.used = min(needed + -needed % NODES_ROUNDED_TO, self.paths.shape[2])
            alive = self._alive()
        self.ready = self.ahead
        return alive

    def _alive(self) -> Tensor:
        return self.paths[:, :, : self.used].any(1)

    def _tidy(self, sentences: Tensor, live: int, more: int = 0) -> None:
        """Keep `sentences`, and of their trees what some hypothesis goes through, `live` nodes each at most;
        behind them comes room for so many `more`. Their sources stay as they are."""
        alive = self.paths[sentences].any(1)
        steps = (
            max(MORE_STEPS, MORE_STEPS_ALONE // max(1, len(sentences) + more))
            if self.ahead == 1
            else MORE_IN_ADVANCE * self.ahead
        )
        room = live + steps * self.places  # a step takes a node for each place
        wide = F.pad(alive, (0, max(0, room - alive.shape[1])))
        order = torch.sort(wide, dim=1, descending=True, stable=True).indices
        order = order[:, :room].clamp(max=alive.shape[1] - 1)
        # `order` ends in repeats of some node where a sentence has fewer live ones; no path may lead there.
        behind = torch.arange(room, device=order.device) >= alive.sum(1, keepdim=True)
        paths = self.paths[sentences].gather(2, order[:, None].expand(-1, self.places, -1))
        depths = self.depths[sentences].gather(1, order)
        self.paths = F.pad(paths & ~behind[:, None], (0, 0, 0, 0, 0, more))
        self.depths = F.pad(depths, (0, 0, 0, more))
        self.ages, self.used, self.ready = F.pad(self.ages[sentences], (0, more)), live, 0
        for layer in self.layers:
            layer.own_keys = _nodes(layer.own_keys, sentences, order, more)
            layer.own_values = _nodes(layer.own_values, sentences, order, more)
            if layer.states is not None:
                layer.states = F.pad(layer.states[sentences], (0, 0, 0, 0, 0, more))

    def compact(self, sentences: Tensor, others: DecodingCache | None = None) -> None:
        """Keep `sentences`, in this order; behind them come those of `others`, which have taken no step
        yet."""
        alive = self.paths[sentences].any(1)
        live = int(alive.sum(1).max()) if alive.numel() else 0
        # The sentence with the longest source may have left, and then all others are padded less.
        longest = self.source_seen.shape[1]
        if len(sentences) < len(self.ages):
            longest = int(self.source_seen[sentences].sum(1).max()) if len(sentences) else 0
        self._tidy(sentences, live, len(others.ages) if others else 0)
        for number, layer in enumerate(self.layers):
            other = others.layers[number] if others else None
            layer.source_keys = _kept(
                layer.source_keys[:, :, :longest], sentences, other.source_keys if other else None
            )
            layer.source_values = _kept(
                layer.source_values[:, :, :longest], sentences, other.source_values if other else None
            )
        if self.coverage is not None:
            theirs = others.coverage if others else None
            new = theirs.mT[:, None] if theirs is not None else None
            self.coverage = _kept(self.coverage.mT[:, None, :longest], sentences, new)[:, 0].mT
        others_seen = others.source_seen[:, None, :, None] if others else None
        seen = _kept(self.source_seen[:, None, :longest, None], sentences, others_seen)
        self.source_seen = seen[:, 0, :, 0]


def _of_parents(x_BNC: Tensor, parents_BN: Tensor) -> Tensor:
    """What the parent of each place has."""
    return x_BNC.gather(1, parents_BN[:, :, None].expand(-1, -1, x_BNC.shape[2]))


def _nodes(x_BHMC: Tensor, sentences: Tensor, order_BM: Tensor, more: int) -> Tensor:
    """The nodes `order_BM` of `sentences`, and zeros for so many `more`."""
    _, heads, room, channels = x_BHMC.shape
    each_head = torch.arange(heads, device=sentences.device)
    first_BH1 = ((sentences[:, None] * heads + each_head) * room)[:, :, None]
    index_BHM = first_BH1 + order_BM[:, None]
    out_BHMC = x_BHMC.new_empty(len(sentences) + more, heads, order_BM.shape[1], channels)
    # New memory may hold NaN, and that times an attention weight of 0 is NaN.
    out_BHMC[len(sentences) :] = 0.0
    taken = out_BHMC[: len(sentences)].view(-1, channels)
    torch.index_select(x_BHMC.reshape(-1, channels), 0, index_BHM.flatten(), out=taken)
    return out_BHMC


def _kept(x_BHSC: Tensor, sentences: Tensor, others_BHSC: Tensor | None) -> Tensor:
    """`sentences`, and behind them `others`; zeros fill up the shorter ones."""
    if others_BHSC is None:
        return x_BHSC.index_select(0, sentences)
    _, heads, here, channels = x_BHSC.shape
    count, there = len(sentences), others_BHSC.shape[2]
    longest = max(here, there)
    out_BHSC = x_BHSC.new_empty(count + len(others_BHSC), heads, longest, channels)
    if here == longest:
        torch.index_select(x_BHSC, 0, sentences, out=out_BHSC[:count])
    else:
        out_BHSC[:count, :, :here] = x_BHSC.index_select(0, sentences)
        out_BHSC[:count, :, here:] = 0.0
    out_BHSC[count:, :, :there] = others_BHSC
    out_BHSC[count:, :, there:] = 0.0
    return out_BHSC
