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
    """Run `model.forward` once. Return the attention weights of each layer and pair of sentences.

    The arguments are flat token ids of source and target, and their layouts. Weights are those before
    dropout.
    """
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
    """Return a hook that appends the weights of each call of an attention module to `layers`.

    It ignores calls in other threads.
    """
    thread = get_ident()

    def record(attention: Any, inputs: tuple[Any, ...]) -> None:
        if get_ident() == thread:
            layers.append([x.cpu() for x in attention.weights(*inputs)])

    return record
