"""What every attention of a model weighs with, in one forward."""

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
"""For each layer, of each pair [heads, queries, keys]; on the host."""


@dataclass(frozen=True, slots=True)
class AttentionWeights:
    """Of the encoder, of the decoder, and between the two."""

    encoder: Layers = field(default_factory=list)
    decoder: Layers = field(default_factory=list)
    cross: Layers = field(default_factory=list)


def attention_weights(
    model: Transformer, source_S: Tensor, target_T: Tensor, source: Layout, target: Layout
) -> AttentionWeights:
    """The weights with which `model` foretells these targets; the arguments are those of its `forward`."""
    found = AttentionWeights()
    with ExitStack() as hooks:
        for module in model.modules():
            if isinstance(module, CrossAttention):
                kept = found.cross
            elif isinstance(module, SelfAttention):
                kept = found.decoder if module.causal else found.encoder
            else:
                continue
            hooks.enter_context(module.register_forward_pre_hook(_into(kept)))
        model(source_S, target_T, source, target)
    return found


def _into(kept: Layers) -> Callable[[Any, tuple[Any, ...]], None]:
    """A hook that keeps what an attention weighs its inputs with, in this thread."""
    thread = get_ident()  # others may translate with the model at the same time

    def keep(attention: Any, inputs: tuple[Any, ...]) -> None:
        if get_ident() == thread:
            kept.append([x.cpu() for x in attention.weights(*inputs)])

    return keep
