"""Where every head of every layer looks, for pairs of sentences that are given."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from threading import get_ident
from typing import Any, cast

import torch
from torch import Tensor

from nmt_cli.attention import reference
from nmt_cli.model.layers import CrossAttention, SelfAttention, by_head
from nmt_cli.model.transformer import DecoderLayer, EncoderLayer, Transformer
from nmt_cli.ragged import Layout
from nmt_cli.text.subwords import END

Layers = list[list[Tensor]]
"""For each layer, the weights of each pair."""


@dataclass(frozen=True, slots=True)
class AttentionMaps:
    """The weights of one pair, on the host; L layers, H heads, S source and T target tokens.

    The weights of a query add up to 1. A query of the decoder is a token that is being written; what it sees
    of the target is what stood there before: the start mark, then all tokens but the last.
    """

    source: Sequence[int]
    """S ids, end mark included."""

    target: Sequence[int]
    """T ids, end mark included unless learned positions ended first."""

    encoder: Tensor
    """[L, H, S, S]"""

    decoder: Tensor
    """[L, H, T, T]"""

    cross: Tensor
    """[L, H, T, S]"""

    def alignment(self) -> list[int]:
        """For each target piece the source piece with most weight in the mean of all layers and heads.

        End marks neither have nor are partners; a source without pieces gives an empty list.
        """
        pieces = sum(token != END for token in self.target)
        mean_TS = self.cross.float().mean((0, 1))[:pieces, :-1]
        aligned: list[int] = mean_TS.argmax(-1).tolist() if mean_TS.shape[1] else []
        return aligned


@torch.inference_mode()
def attention_maps(
    model: Transformer, pairs: Sequence[tuple[Sequence[int], Sequence[int]]]
) -> list[AttentionMaps]:
    """The maps of each pair of source and target ids, without end marks; all pairs are one batch."""
    most = model.config.longest if model.config.positions == "learned" else None
    sources = [[*source, END] for source, _ in pairs]
    targets = [[*target, END][:most] for _, target in pairs]
    kinds = (
        [torch.stack(layers) for layers in zip(*kind, strict=True)]
        for kind in _watched(model, sources, targets)
    )
    return [AttentionMaps(*parts) for parts in zip(sources, targets, *kinds, strict=True)]


def alignment(
    model: Transformer, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]
) -> list[int]:
    """The alignment of a line that was translated in parts: all pieces are counted from its beginning."""
    aligned: list[int] = []
    before = 0
    for source, target in zip(sources, targets, strict=True):
        (maps,) = attention_maps(model, [(source, target)])
        aligned += [before + place for place in maps.alignment()]
        before += len(source)
    return aligned


def _watched(
    model: Transformer, sources: Sequence[list[int]], targets: Sequence[list[int]]
) -> tuple[Layers, Layers, Layers]:
    """The weights of one forward: of the encoder, of the decoder, and between the two."""
    encoder: Layers = []
    decoder: Layers = []
    cross: Layers = []
    with ExitStack() as hooks:
        for layer in cast(list[EncoderLayer], list(model.encoder)):
            hooks.enter_context(layer.attention.register_forward_pre_hook(_into(encoder, _own_weights)))
        for below in cast(list[DecoderLayer], list(model.decoder)):
            hooks.enter_context(below.attention.register_forward_pre_hook(_into(decoder, _own_weights)))
            hooks.enter_context(below.cross.register_forward_pre_hook(_into(cross, _cross_weights)))
        inputs = [[END, *target[:-1]] for target in targets]
        (source_S, source), (inputs_T, target) = (_flat(model, tokens) for tokens in (sources, inputs))
        model(source_S, inputs_T, source, target)
    return encoder, decoder, cross


def _into(layers: Layers, weigh: Callable[..., list[Tensor]]) -> Callable[[Any, tuple[Any, ...]], None]:
    """A hook that keeps what `weigh` makes of an attention and its inputs, in this thread."""
    thread = get_ident()  # others may translate with the model at the same time

    def keep(attention: Any, inputs: tuple[Any, ...]) -> None:
        if get_ident() == thread:
            layers.append([x.cpu() for x in weigh(attention, *inputs)])

    return keep


def _own_weights(attention: SelfAttention, x_TD: Tensor, layout: Layout) -> list[Tensor]:
    keys = attention.heads * attention.widths[0]
    query_THK, key_THK = (
        by_head(part, attention.heads)
        for part in attention.query_key_value(x_TD)[:, : 2 * keys].split(keys, dim=-1)
    )
    return reference.weights(
        query_THK, key_THK, layout, layout, causal=attention.causal, window=attention.window
    )


def _cross_weights(
    attention: CrossAttention, x_TD: Tensor, encoded_SD: Tensor, target: Layout, source: Layout
) -> list[Tensor]:
    query_THK = by_head(attention.query(x_TD), attention.heads)
    keys_SHK, _ = attention.keys_values(encoded_SD)
    return reference.weights(query_THK, keys_SHK, target, source)


def _flat(model: Transformer, sentences: Sequence[list[int]]) -> tuple[Tensor, Layout]:
    device = model.output_matrix.device
    tokens = torch.tensor([token for sentence in sentences for token in sentence], dtype=torch.int64)
    return tokens.to(device), Layout.of([len(sentence) for sentence in sentences]).to(device)
