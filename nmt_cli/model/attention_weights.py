"""Record the attention weights of all layers in one forward pass."""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from threading import get_ident
from typing import Any

from torch import Tensor

from nmt_cli.model.layers import CrossAttention, SelfAttention
from nmt_cli.model.transformer import Transformer
from nmt_cli.ragged import Layout

Layers = list[list[Tensor]]
"""For each layer and each pair of sentences, weights [heads, queries, keys] on the host."""


@dataclass(frozen=True, slots=True)
class AttentionWeights:
    """Weights of self-attention in encoder and decoder, and of attention to the source."""

    encoder: Layers = field(default_factory=list)
    decoder: Layers = field(default_factory=list)
    cross: Layers = field(default_factory=list)


def attention_weights(
    model: Transformer, source_S: Tensor, target_T: Tensor, source: Layout, target: Layout
) -> AttentionWeights:
    """Run `model.forward` once. Return all attention weights before dropout, by layer and sentence pair."""
    recorded = AttentionWeights()
    with ExitStack() as hooks:
        for module in model.modules():
            if isinstance(module, CrossAttention):
                layers = recorded.cross
            elif isinstance(module, SelfAttention):
                layers = recorded.decoder if module.causal else recorded.encoder
            else:
                continue
            hooks.enter_context(module.register_forward_pre_hook(_recorder(layers)))
        model(source_S, target_T, source, target)
    return recorded


def _recorder(layers: Layers) -> Callable[[Any, tuple[Any, ...]], None]:
    """Return a hook that appends an attention module's weights to `layers`, for calls in this thread only."""
    thread = get_ident()

    def record(attention: Any, inputs: tuple[Any, ...]) -> None:
        if get_ident() == thread:
            layers.append([x.cpu() for x in attention.weights(*inputs)])

    return record
