"""Keys and values of one decoder layer, and a decoding step over them. `cache.py` defines axes and terms."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from nmt_cli.attention.cached_attention import Masked, Rows
from nmt_cli.model.token_tree import of_parents


@dataclass(slots=True)
class LayerCache:
    """Keys [B, H, M, K] and values [B, H, M, V] of a layer: own (target nodes) and source tokens."""

    own_keys: Tensor
    own_values: Tensor
    source_keys: Tensor
    source_values: Tensor

    states: Tensor | None = None
    """[B, N, D]: the state of each hypothesis with an SSRU. Own keys and values have 0 heads then."""

    def reorder(self, parents_BN: Tensor) -> None:
        """Replace the SSRU state of each slot, if any, by its parent slot's state. Keys and values stay."""
        if self.states is not None:
            self.states = of_parents(self.states, parents_BN)

    def copy_nodes(self, sentences: Tensor, order_BM: Tensor, joining: int) -> None:
        """Keep nodes `order_BM` and SSRU states of `sentences`. Append zeros for `joining` sentences."""
        self.own_keys = _nodes(self.own_keys, sentences, order_BM, joining)
        self.own_values = _nodes(self.own_values, sentences, order_BM, joining)
        if self.states is not None:
            self.states = F.pad(self.states[sentences], (0, 0, 0, 0, 0, joining))

    def join_sources(self, sentences: Tensor, longest: int, new: LayerCache | None) -> None:
        """Keep only `sentences`, with `longest` source tokens each. Append all sources of `new`, if given."""
        keys, values = self.source_keys[:, :, :longest], self.source_values[:, :, :longest]
        self.source_keys = joined(keys, sentences, new.source_keys if new else None)
        self.source_values = joined(values, sentences, new.source_values if new else None)


@dataclass(frozen=True, slots=True)
class Step:
    """One step of decoding, as all layers need it."""

    rows: Rows
    nodes_RH: Tensor
    """The index of each row's new node in [B x H x M], for each head. Without dummy rows, see `Rows`."""

    own: Masked
    """The target nodes that each row attends to."""

    source: Masked
    """The source tokens that each row attends to."""

    waves_RK: Tensor | None = None
    """The sinusoids of the rows' positions, for rotary positions only. See `projections.turned`."""


def _nodes(x_BHMC: Tensor, sentences: Tensor, order_BM: Tensor, joining: int) -> Tensor:
    """Return a copy of the nodes `order_BM` of `sentences`, then zeros for `joining` sentences."""
    _, heads, capacity, channels = x_BHMC.shape
    head_numbers = torch.arange(heads, device=sentences.device)
    first_BH1 = ((sentences[:, None] * heads + head_numbers) * capacity)[:, :, None]
    index_BHM = first_BH1 + order_BM[:, None]
    out_BHMC = x_BHMC.new_empty(len(sentences) + joining, heads, order_BM.shape[1], channels)
    # New memory may hold nan. Times an attention weight of 0, that would still be nan.
    out_BHMC[len(sentences) :] = 0.0
    copied = out_BHMC[: len(sentences)].view(-1, channels)
    torch.index_select(x_BHMC.reshape(-1, channels), 0, index_BHM.flatten(), out=copied)
    return out_BHMC


def joined(x_BHSC: Tensor, sentences: Tensor, new_BHSC: Tensor | None) -> Tensor:
    """Return `sentences` of `x_BHSC`, then all of `new_BHSC`. The tensor with the shorter axis S is padded
    with zeros."""
    if new_BHSC is None:
        return x_BHSC.index_select(0, sentences)
    _, heads, old_longest, channels = x_BHSC.shape
    count, new_longest = len(sentences), new_BHSC.shape[2]
    longest = max(old_longest, new_longest)
    out_BHSC = x_BHSC.new_empty(count + len(new_BHSC), heads, longest, channels)
    if old_longest == longest:
        torch.index_select(x_BHSC, 0, sentences, out=out_BHSC[:count])
    else:
        out_BHSC[:count, :, :old_longest] = x_BHSC.index_select(0, sentences)
        out_BHSC[:count, :, old_longest:] = 0.0
    out_BHSC[count:, :, :new_longest] = new_BHSC
    out_BHSC[count:, :, new_longest:] = 0.0
    return out_BHSC
