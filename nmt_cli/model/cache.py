"""The decoding cache: keys and values of the tokens of all hypotheses, and of the source.

A batch has B sentences, each with N slots for hypotheses. Slot n of sentence b has the number b x N + n. A
row is a slot in use.

The tokens of a sentence's hypotheses form a tree of at most M nodes. Hypotheses with the same beginning share
its nodes. A hypothesis is a path: the set of nodes from its first to its newest token. So hypotheses are
reordered by copying their paths, and keys and values stay where they are. A node on no path is free for the
next token.
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

from nmt_cli.attention.cached import Paths, Rows, Seen
from nmt_cli.attention.dispatch import follower, seen_by
from nmt_cli.attention.padded import padded
from nmt_cli.model.config import ModelConfig
from nmt_cli.model.layer_cache import LayerCache, Step, joined, of_parents
from nmt_cli.ragged import Layout
from nmt_cli.runtime.kernels.loading import compiled_kernels

FIRST_STEPS = 8
"""Steps for which a new tree has nodes."""

MORE_STEPS, MORE_STEPS_ALONE = 4, 32
"""Steps for which a full tree gets nodes, and the same for a single sentence.

Two sentences get half of the latter, and so on. In large batches, nodes are most of the memory. In small
ones, time counts more."""

MORE_IN_ADVANCE = 4
"""The same, in multiples of `DecodingCache.ahead`, if nodes are reserved for several steps."""

NO_WINDOW = 1 << 62
"""A window of more tokens than any hypothesis has."""

NODES_ROUNDED_TO = 8
"""When `DecodingCache.used` grows, it becomes a multiple of this, so that it grows rarely."""


class WholeStep(Protocol):
    """A compiled function for all layers of a few rows. See `few_rows.FewRows`."""

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
    """The state of a batch of hypotheses between decoding steps."""

    layers: Sequence[LayerCache]

    source_seen: Tensor
    """[B, S]: True for real source tokens, False for padding."""

    paths: Tensor
    """[B, N, M]: the nodes on the path of each hypothesis. A slot that is not in use has none."""

    depths: Tensor
    """[B, M]: the number of tokens before a node."""

    ages: Tensor
    """[B]: the number of tokens of each hypothesis of a sentence."""

    used: int = 0
    """The nodes in use are among the first `used` of each sentence."""

    ahead: int = 1
    """Steps for which nodes are reserved at once. If more than 1, all slots are rows."""

    ready: int = 0
    """Steps for which nodes are still reserved. Meanwhile the host need not wait for the device."""

    coverage: Tensor | None = None
    """[B, N, S]: attention to each source token so far, summed over layers. None if not recorded."""

    listed: tuple[Tensor, NDArray[np.int64], Paths] | None = None
    """The result of `_source_paths` for a step, after the `source_seen` and the slots that it depends on."""

    located: tuple[Tensor, Tensor, NDArray[np.int64]] | None = None
    """The result of `addresses`, after the two tensors whose replacement makes it invalid."""

    @property
    def slots(self) -> int:
        """N, the number of slots of a sentence."""
        return self.paths.shape[1]

    def step(self, rows_R: Tensor, window: int, dtype: torch.dtype) -> Step:
        """Reserve a node for the next token of each row, and return the step that computes it.

        `rows_R` are the numbers of the slots in use. A row attends to its path, with its new node, within
        `window` (0 is all). `dtype` is that of the model's weights. On a CPU, compiled kernels follow the
        paths of few rows. Otherwise masks over all nodes are made.
        """
        rows = Rows.at(rows_R, len(self.paths), self.slots, rounded=self.ahead == 1)
        own: Seen
        source: Seen
        if kernels := follower(rows, dtype):
            nodes_RH, own = self._follow_paths(rows, len(rows_R), window, kernels)
            source = self._source_paths(rows, kernels)
        else:
            nodes_RH, seen_BNM = self._mask_nodes(rows_R, window)
            widths = self.layers[0].widths
            own = seen_by(rows, seen_BNM, dtype, widths)
            source = seen_by(rows, self.source_seen[:, None], dtype, widths)
        return Step(rows, nodes_RH, own, source, self.coverage, self.source_seen)

    def _mask_nodes(self, rows_R: Tensor, window: int) -> tuple[Tensor, Tensor]:
        """Reserve nodes. Return their indices, see `Step.nodes_RH`, and a mask [B, N, M] of visible nodes."""
        nodes_BN = self._free_nodes()
        sentences, slots, capacity = self.paths.shape
        in_use = torch.zeros(sentences * slots, dtype=torch.bool, device=self.paths.device)
        in_use.index_fill_(0, rows_R, True)
        # The node of a slot that is not in use stays on no path, and is free again in the next step.
        self.paths.scatter_(2, nodes_BN[:, :, None], in_use.view(sentences, slots, 1))
        self.depths.scatter_(1, nodes_BN, self.ages[:, None].expand_as(nodes_BN))
        seen = self.paths[:, :, : self.used]
        if window:
            seen = seen & (self.depths[:, None, : self.used] >= self.ages[:, None, None] - window // 2)
        heads = self.layers[0].own_keys.shape[1]
        head_numbers = torch.arange(heads, device=self.paths.device)
        first_RH = ((rows_R // slots)[:, None] * heads + head_numbers) * capacity
        return first_RH + nodes_BN.flatten()[rows_R, None], seen

    def _follow_paths(self, rows: Rows, count: int, window: int, kernels: ModuleType) -> tuple[Tensor, Paths]:
        """Do the same for the first `count` rows by a compiled kernel. Return lists of visible nodes."""
        row_slots = rows.from_places.numpy()
        nodes_RH = np.empty((count, self.layers[0].own_keys.shape[1]), np.int64)
        counts = np.empty(len(row_slots), np.int32)
        while True:
            seen = np.empty((len(row_slots), self.used), np.int32)
            if self._take_nodes(window, (row_slots, nodes_RH, seen, counts)):
                break
            self.get_ready()
        self.ready = max(self.ready - 1, 0)
        return torch.from_numpy(nodes_RH), Paths(row_slots // self.slots, seen, counts, kernels)

    def _take_nodes(self, window: int, rows: Sequence[NDArray[np.integer]]) -> bool:
        """Call `tree.compiled.take_nodes` with the arrays of its `Rows`."""
        compiled = compiled_kernels("model.tree")
        assert compiled
        tree = compiled.Tree(self.paths.numpy(), self.depths.numpy(), self.ages.numpy())
        reach = window // 2 + 1 if window else NO_WINDOW
        taken: bool = compiled.take_nodes(tree, self.used, reach, compiled.Rows(*rows))
        return taken

    def _source_paths(self, rows: Rows, kernels: ModuleType) -> Paths:
        """List the real source tokens of each row. For the same rows, reuse the lists of the last step."""
        row_slots = rows.from_places.numpy()
        if self.listed and self.listed[0] is self.source_seen and np.array_equal(self.listed[1], row_slots):
            return self.listed[2]
        paths = Paths.of(rows, self.source_seen[:, None], kernels)
        self.listed = self.source_seen, row_slots, paths
        return paths

    def reorder(self, parents_BN: Tensor, in_use_BN: Tensor) -> None:
        """Replace the hypothesis of each slot by that of its parent, a slot of the same sentence.

        Slots that are False in `in_use_BN` become free.
        """
        on_host = self.paths.device.type == "cpu" and self.ahead == 1
        if on_host and (compiled := compiled_kernels("model.tree")):
            arrays = (x.contiguous().numpy() for x in (parents_BN, in_use_BN))
            compiled.follow(self.paths.numpy(), *arrays)
        else:
            self.paths = of_parents(self.paths, parents_BN) & in_use_BN[:, :, None]
        if self.coverage is not None:
            self.coverage = of_parents(self.coverage, parents_BN)
        for layer in self.layers:
            layer.reorder(parents_BN)

    def addresses(self) -> NDArray[np.int64]:
        """Return the memory addresses of each layer's four tensors. The array is cached until they change."""
        first = self.layers[0]
        if not (self.located and self.located[0] is first.own_keys and self.located[1] is first.source_keys):
            addresses = [[x.data_ptr() for x in layer.all_tensors] for layer in self.layers]
            self.located = first.own_keys, first.source_keys, np.array(addresses)
        return self.located[2]

    def begin_coverage(self) -> None:
        """Record from now on how much attention each source token gets. This slows decoding down."""
        shape = (len(self.ages), self.slots, self.source_seen.shape[1])
        self.coverage = torch.zeros(shape, device=self.paths.device)

    def mean_coverage(self) -> Tensor:
        """Return [B, N, S]: attention to each source token so far, averaged over layers and heads."""
        assert self.coverage is not None
        return self.coverage / len(self.layers)

    def _free_nodes(self) -> Tensor:
        """Return [B, N]: for each slot a node that is on no path."""
        alive = self._alive() if self.ready else self.get_ready()
        self.ready -= 1
        # False sorts before True, so free nodes come first.
        return alive.sort(dim=1, stable=True).indices[:, : self.slots]

    def get_ready(self) -> Tensor:
        """Reserve nodes for the next steps. Return [B, M]: True for nodes on a path. Waits for the device."""
        alive = self._alive()
        # All sentences have as many nodes as the sentence that needs most.
        live = int(alive.sum(1).max())
        needed = live + self.slots * self.ahead
        if needed > self.used:
            if needed > self.paths.shape[2]:
                self._rebuild(torch.arange(len(self.ages), device=self.paths.device), live)
            self.used = min(needed + -needed % NODES_ROUNDED_TO, self.paths.shape[2])
            alive = self._alive()
        self.ready = self.ahead
        return alive

    def _alive(self) -> Tensor:
        """Return [B, `used`]: True for nodes on a path."""
        return self.paths[:, :, : self.used].any(1)

    def _rebuild(self, sentences: Tensor, live: int, joining: int = 0) -> None:
        """Copy the live nodes of `sentences` to new memory with free nodes for more steps.

        `live` is the maximum number of live nodes of a sentence. Empty trees for `joining` more sentences
        follow. The source's keys and values are not changed.
        """
        alive = self.paths[sentences].any(1)
        alone = MORE_STEPS_ALONE // max(1, len(sentences) + joining)
        steps = max(MORE_STEPS, alone) if self.ahead == 1 else MORE_IN_ADVANCE * self.ahead
        capacity = live + steps * self.slots  # a step needs a node for each slot
        padded_alive = F.pad(alive, (0, max(0, capacity - alive.shape[1])))
        order = torch.sort(padded_alive, dim=1, descending=True, stable=True).indices
        order = order[:, :capacity].clamp(max=alive.shape[1] - 1)
        # For sentences with fewer live nodes, `order` ends in repeated nodes. They must be on no path.
        repeated = torch.arange(capacity, device=order.device) >= alive.sum(1, keepdim=True)
        paths = self.paths[sentences].gather(2, order[:, None].expand(-1, self.slots, -1))
        depths = self.depths[sentences].gather(1, order)
        self.paths = F.pad(paths & ~repeated[:, None], (0, 0, 0, 0, 0, joining))
        self.depths = F.pad(depths, (0, 0, 0, joining))
        self.ages, self.used, self.ready = F.pad(self.ages[sentences], (0, joining)), live, 0
        for layer in self.layers:
            layer.copy_nodes(sentences, order, joining)

    def compact(self, sentences: Tensor, joining: DecodingCache | None = None) -> None:
        """Keep only `sentences`, in this order, and append those of `joining`, which took no step yet."""
        alive = self.paths[sentences].any(1)
        live = int(alive.sum(1).max()) if alive.numel() else 0
        # Without the sentence with the longest source, the others need less padding.
        longest = self.source_seen.shape[1]
        if len(sentences) < len(self.ages):
            longest = int(self.source_seen[sentences].sum(1).max()) if len(sentences) else 0
        self._rebuild(sentences, live, len(joining.ages) if joining else 0)
        new_layers = joining.layers if joining else [None] * len(self.layers)
        for layer, new in zip(self.layers, new_layers, strict=True):
            layer.join_sources(sentences, longest, new)
        if self.coverage is not None:
            new_coverage = joining.coverage if joining else None
            new_coverage = new_coverage.mT[:, None] if new_coverage is not None else None
            self.coverage = joined(self.coverage.mT[:, None, :longest], sentences, new_coverage)[:, 0].mT
        new_seen = joining.source_seen[:, None, :, None] if joining else None
        seen = joined(self.source_seen[:, None, :longest, None], sentences, new_seen)
        self.source_seen = seen[:, 0, :, 0]


def begin_cache(
    config: ModelConfig,
    keys_values: Sequence[tuple[Tensor, Tensor]],
    source: Layout,
    slots: int,
    dtype: torch.dtype,
    cache_dtype: torch.dtype | None,
) -> DecodingCache:
    """Return the cache of a batch of sentences, with `slots` empty hypotheses each.

    `keys_values` are the source's keys [S, H, K] and values [S, H, V] in each decoder layer. `dtype` is that
    of the model's weights. `cache_dtype` is that of the cached keys and values, by default that of
    `keys_values`.
    """
    sentences, device, capacity = len(source.lengths), keys_values[0][0].device, FIRST_STEPS * slots
    seen_BS = torch.arange(source.longest, device=device) < source.starts.diff()[:, None]
    unseen_BHS1 = ~seen_BS[:, None, :, None]
    has_ssru = config.decoder_history == "ssru"
    own = (sentences, 0 if has_ssru else config.heads, capacity)
    states = (sentences, slots, config.width)
    precise = torch.promote_types(dtype, torch.float32)
    layers = []
    for keys_SHK, values_SHV in keys_values:
        padded_pair = (padded(x.to(cache_dtype or x.dtype), source) for x in (keys_SHK, values_SHV))
        # Padding has the attention weight 0. It must be finite, as 0 x nan is nan.
        keys, values = (x.masked_fill(unseen_BHS1, 0.0).contiguous() for x in padded_pair)
        layers.append(
            LayerCache(
                own_keys=keys.new_zeros(*own, config.d_k),
                own_values=keys.new_zeros(*own, config.d_v),
                source_keys=keys,
                source_values=values,
                states=keys.new_zeros(states, dtype=precise) if has_ssru else None,
            )
        )
    return DecodingCache(
        layers=layers,
        source_seen=seen_BS,
        paths=torch.zeros(sentences, slots, capacity, dtype=torch.bool, device=device),
        depths=torch.zeros(sentences, capacity, dtype=torch.int64, device=device),
        ages=torch.zeros(sentences, dtype=torch.int64, device=device),
    )
