"""The decoding cache: keys and values of the tokens of all hypotheses, and of the source.

A batch has B sentences, each with N slots for hypotheses. Slot n of sentence b has the number b x N + n. A
row is a slot in use. The tokens of a sentence's hypotheses form a tree of at most M nodes, see
`token_tree.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from nmt_cli.attention.attention import seen_by
from nmt_cli.attention.cached_attention import Rows
from nmt_cli.attention.padded_attention import padded
from nmt_cli.model.config import ModelConfig
from nmt_cli.model.layer_cache import LayerCache, Step, joined
from nmt_cli.model.self_positions import RelativeBias
from nmt_cli.model.token_tree import TokenTree
from nmt_cli.ragged import Layout

FIRST_STEPS = 8
"""Steps for which a new tree has nodes."""


@dataclass(slots=True, kw_only=True)
class DecodingCache(TokenTree):
    """The state of a batch of hypotheses between decoding steps."""

    layers: Sequence[LayerCache]

    source_seen: Tensor
    """[B, S]: True for real source tokens, False for padding."""

    def step(
        self, rows_R: Tensor, window: int, dtype: torch.dtype, relative: RelativeBias | None = None
    ) -> Step:
        """Reserve a node for the next token of each row, and return the `Step` with which the layers compute
        it.

        rows_R: the slots in use, ascending.
        window: a row attends to its new node and to nodes of its path at most `window` // 2 tokens older. 0
            hides none.
        dtype: that of the model's weights.
        relative: the bias of relative positions, if the model has one.
        """
        rows = Rows.at(rows_R, len(self.paths), self.slots, rounded=self.ahead == 1)
        heads = self.layers[0].own_keys.shape[1]
        nodes_RH, seen_BNM = self.mask_nodes(rows_R, heads, window)
        bias_BHM = relative(self.depths[:, : self.used] - self.ages[:, None]).mT if relative else None
        own = seen_by(rows, seen_BNM, dtype, bias_BHM)
        source = seen_by(rows, self.source_seen[:, None], dtype)
        return Step(rows, nodes_RH, own, source)

    def reorder(self, parents_BN: Tensor, in_use_BN: Tensor) -> None:
        """Replace each slot's hypothesis by its parent slot's. Free the slots that `in_use_BN` excludes."""
        self.reorder_paths(parents_BN, in_use_BN)
        for layer in self.layers:
            layer.reorder(parents_BN)

    def move_nodes(self, sentences: Tensor, order_BM: Tensor, joining: int) -> None:
        """Keep nodes `order_BM` and SSRU states of `sentences`. Append zeros for `joining` sentences."""
        for layer in self.layers:
            layer.copy_nodes(sentences, order_BM, joining)

    def compact(self, sentences: Tensor, joining: DecodingCache | None = None) -> None:
        """Keep only `sentences`, indices in this order, and append all sentences of `joining`, which has
        taken no step yet."""
        # Without the sentence with the longest source, the others need less padding.
        longest = self.source_seen.shape[1]
        if len(sentences) < len(self.ages):
            longest = int(self.source_seen[sentences].sum(1).max()) if len(sentences) else 0
        self.rebuild(sentences, len(joining.ages) if joining else 0)
        new_layers = joining.layers if joining else [None] * len(self.layers)
        for layer, new in zip(self.layers, new_layers, strict=True):
            layer.join_sources(sentences, longest, new)
        new_seen = joining.source_seen[:, None, :, None] if joining else None
        seen = joined(self.source_seen[:, None, :longest, None], sentences, new_seen)
        self.source_seen = seen[:, 0, :, 0]


def begin_cache(
    config: ModelConfig,
    keys_values: Sequence[tuple[Tensor, Tensor]],
    source: Layout,
    slots: int,
    dtype: torch.dtype,
) -> DecodingCache:
    """Return the cache of a batch, with `slots` empty hypotheses for each sentence.

    config: of the decoder.
    keys_values: for each decoder layer, the keys [S, H, K] and values [S, H, V] of the `source` tokens.
    dtype: that of the weights. The states of an SSRU have at least float32.
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
        padded_pair = (padded(x, source) for x in (keys_SHK, values_SHV))
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
