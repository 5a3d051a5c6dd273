"""The attention weights of every head and layer for pairs of source and translation."""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from threading import get_ident
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nmt_cli.attention.groups import grouped
from nmt_cli.decoding.forced import Pair
from nmt_cli.model.layers import CrossAttention, SelfAttention
from nmt_cli.model.transformer import GUIDED_HEAD, Transformer
from nmt_cli.ragged import flat

CERTAINTY = 4.0
"""How much more the certain heads count in an alignment. `recipes.benchmarks.markup` measures alignments."""


@dataclass(frozen=True, slots=True)
class AttentionMaps:
    """The attention weights of one pair, on the host. L layers, H heads, S source and T target tokens.

    The weights of a query sum to 1. Row t of the decoder's maps is the step that predicts target token t. The
    columns are the decoder's inputs: the start mark, then all target tokens except the last.
    """

    source: Sequence[int]
    """S ids with the end token, if sources have one."""

    target: Sequence[int]
    """T ids with the end token. Targets longer than the model's learned positions are cut."""

    ended: bool
    """Whether the target has its end token."""

    encoder: Tensor
    """[L, H, S, S]: queries, then keys."""

    decoder: Tensor
    """[L, H, T, T]: queries, then keys. L is 0 for decoders without self-attention."""

    cross: Tensor
    """[L, H, T, S]: queries of the decoder, then keys of the source."""

    source_ended: bool = True
    """Whether the source has its end token."""

    guided: bool = False
    """Whether the model has a guided head."""

    def alignment(self) -> list[int]:
        """Return for each target token the index of its source token, by `aligning_attention`.

        End tokens are excluded on both sides. Return [] for an empty source.
        """
        length = len(self.target) - self.ended
        attention_TS = aligning_attention(self.cross, self.guided)
        attention_TS = attention_TS[:length, : len(self.source) - self.source_ended]
        aligned: list[int] = attention_TS.argmax(-1).tolist() if attention_TS.shape[1] else []
        return aligned


@torch.inference_mode()
def attention_maps(model: Transformer, pairs: Sequence[Pair]) -> list[AttentionMaps]:
    """Return the attention maps of each pair of source and target ids, in the order of `pairs`.

    Add end tokens to the ids. Cut targets and their end tokens to the model's number of learned positions.
    Compute all pairs in one batch. Raise `RuntimeError` if a layer did not record its weights.
    """
    sources, targets, kinds = _recorded(model, pairs)
    own = len(model.decoder) if model.config.decoder_history == "attention" else 0
    if [len(kind) for kind in kinds] != [len(model.encoder), own, len(model.decoder)]:
        raise RuntimeError(f"some attention layers were not recorded: {[len(kind) for kind in kinds]}")
    none = [torch.empty(0, model.config.of_decoder.heads, len(tokens), len(tokens)) for tokens in targets]
    maps = ([torch.stack(layers) for layers in zip(*kind, strict=True)] or none for kind in kinds)
    ended = [len(target) < len(tokens) for (_, target), tokens in zip(pairs, targets, strict=True)]
    source_ended = [len(source) < len(tokens) for (source, _), tokens in zip(pairs, sources, strict=True)]
    guided = [model.guided] * len(pairs)
    described = zip(sources, targets, ended, *maps, source_ended, guided, strict=True)
    return [AttentionMaps(*parts) for parts in described]


def aligning_attention(cross_LHTS: Tensor, guided: bool) -> Tensor:
    """Return [T, S]: the attention of the guided head, or else the mean over the heads of the upper layers.

    A head with the mean entropy H has the weight exp(-`CERTAINTY` H), because certain heads align words best.
    """
    if guided:
        return cross_LHTS[-1, GUIDED_HEAD].float()
    heads_HTS = cross_LHTS[len(cross_LHTS) // 2 :].flatten(0, 1).float()
    entropies_H = torch.special.entr(heads_HTS).sum(-1).mean(-1)
    shares_H = torch.softmax(-CERTAINTY * entropies_H, 0)
    return torch.einsum("h,hts->ts", shares_H, heads_HTS)


def _recorded(
    model: Transformer, pairs: Sequence[Pair], cross_only: bool = False
) -> tuple[list[list[int]], list[list[int]], tuple[list[list[Tensor]], ...]]:
    """Run the model once on all `pairs`, and return what its attention did.

    Return the source tokens and the target tokens of each pair, both with end tokens, and three lists of
    weights before dropout: of the encoder, of the decoder, and of the decoder to the source. A list has, for
    each layer and pair, [H, queries, keys] on the host. Targets are cut to the model's positions.

    cross_only: record only the last list, and leave the others empty.
    """
    limit = model.config.limit or None
    sources = [model.source_vocabulary.ended(source) for source, _ in pairs]
    targets = [model.target_vocabulary.ended(target)[:limit] for _, target in pairs]
    (source_S, source), (target_T, target) = (flat(tokens, model.device) for tokens in (sources, targets))
    encoder, decoder, cross = (list[list[Tensor]]() for _ in range(3))
    thread = get_ident()

    def record(attention: Any, inputs: tuple[Any, ...]) -> None:
        if get_ident() == thread:  # other threads may use the model
            own = decoder if getattr(attention, "causal", False) else encoder
            layers = cross if isinstance(attention, CrossAttention) else own
            layers.append([x.cpu() for x in attention.weights(*inputs)])

    kinds = CrossAttention if cross_only else SelfAttention | CrossAttention
    with ExitStack() as hooks:
        for module in model.modules():
            if isinstance(module, kinds):
                hooks.enter_context(module.register_forward_pre_hook(record))
        model(source_S, target_T, grouped(source), grouped(target, source))
    return sources, targets, (encoder, decoder, cross)


@torch.inference_mode()
def source_attention(model: Transformer, pairs: Sequence[Pair]) -> list[NDArray[np.float32]]:
    """Return for each pair the attention [T, S + 1] of T target ids to S source ids and the end token.

    It is the `aligning_attention` at the step that predicts the id. Ids have no end tokens. The attention of
    ids beyond the model's positions is 0, and that to an end token that sources lack.
    """
    if not pairs:
        return []
    _, _, (*_, cross) = _recorded(model, pairs, cross_only=True)
    attention = []
    for number, (source_ids, ids) in enumerate(pairs):
        layers_LHTS = torch.stack([layer[number] for layer in cross])
        mean_TS = aligning_attention(layers_LHTS, model.guided)[: len(ids)].numpy()
        missing = len(ids) - len(mean_TS), len(source_ids) + 1 - mean_TS.shape[1]
        attention.append(np.pad(mean_TS, [(0, count) for count in missing]))
    return attention


def alignment(
    model: Transformer, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]
) -> list[int]:
    """Return for each target token of a line the index of its source token, counted from the line's start.

    `sources` and `targets` are ids of the line's parts, without end tokens. Parts without source add nothing.
    """
    aligned: list[int] = []
    offset = 0
    for source, target in zip(sources, targets, strict=True):
        (maps,) = attention_maps(model, [(source, target)])
        aligned += [offset + index for index in maps.alignment()]
        offset += len(source)
    return aligned
