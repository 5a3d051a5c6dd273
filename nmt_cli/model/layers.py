"""The sub-layers of the Transformer: D channels, H heads, K channels of a head's keys, V of its values."""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nmt_cli.attention.dispatch import attend_projected
from nmt_cli.attention.options import Options
from nmt_cli.attention.projections import Heads, parts_of
from nmt_cli.attention.reference import weights
from nmt_cli.model.cache import LayerCache, Step
from nmt_cli.model.config import ModelConfig
from nmt_cli.model.dropout import dropout, dropout_seed
from nmt_cli.model.pointwise.dispatch import normed_sum, relu_linear
from nmt_cli.ragged import Layout


def gelu_linear(x: Tensor, linear: nn.Module) -> Tensor:
    """GELU of a projection."""
    return F.gelu(linear(x))


def swish_linear(x: Tensor, linear: nn.Module) -> Tensor:
    """Swish of a projection."""
    return F.silu(linear(x))


ACTIVATIONS: dict[str, Callable[[Tensor, nn.Module], Tensor]] = {
    "relu": relu_linear,
    "gelu": gelu_linear,
    "swish": swish_linear,
}
"""Of feed-forward layers: what becomes of x and the first projection."""

INPUT_GAINS = {"xavier": 1.0, "smaller": 0.5**0.5}
"""Of what attention makes of its input: queries, keys and values."""


def projection(inputs: int, *outputs: int, bias: bool, gain: float = 1.0) -> nn.Linear:
    """Several projections of one input in one matrix, each drawn as if it stood alone (Xavier, uniform)."""
    linear = nn.Linear(inputs, sum(outputs), bias=bias)
    # The range of the draws depends on the number of outputs, and is to be that of each projection.
    for rows in torch.split(linear.weight.detach(), list(outputs)):
        nn.init.xavier_uniform_(rows, gain)
    if bias:
        nn.init.zeros_(linear.bias)
    return linear


def by_head(x_TD: Tensor, heads: int) -> Tensor:
    """[T, H, channels of a head]."""
    return x_TD.view(x_TD.shape[0], heads, x_TD.shape[1] // heads)


def layer_norm(config: ModelConfig) -> nn.LayerNorm:
    """Over the channels of a token."""
    return nn.LayerNorm(config.width, eps=config.norm_epsilon)


LAST_NORMS: dict[str, Callable[[ModelConfig], nn.Module]] = {
    "post": lambda config: nn.Identity(),
    "pre": layer_norm,
}
"""What ends a stack; where norms stand behind the sub-layers, there is one already."""


class Residual(nn.Module):
    """Adds to x what a sub-layer makes of it, and normalises before or behind."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.norm = layer_norm(config)
        self.post = config.norm == "post"
        self.drop = config.residual_dropout

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        """[..., D] to [..., D], in the type of x; norms are computed in that of their weights."""
        drop = self.drop if self.training else 0.0
        if self.post:
            return normed_sum(x, sublayer(x), self.norm, drop)
        return x + dropout(sublayer(self.norm(x.to(self.norm.weight.dtype))), drop, self.training)


class SelfAttention(nn.Module):
    """Each token attends to its own sentence; a decoder's to what came before."""

    def __init__(self, config: ModelConfig, *, causal: bool) -> None:
        super().__init__()
        self.heads, self.shape = config.heads, Heads(config.heads, config.d_k, config.d_v)
        outputs = [config.heads * width for width in (config.d_k, config.d_k, config.d_v)]
        gain = INPUT_GAINS[config.init]
        self.query_key_value = projection(config.width, *outputs, bias=config.attention_bias, gain=gain)
        self.output = projection(outputs[2], config.width, bias=config.attention_bias)
        self.causal, self.drop = causal, config.attention_dropout
        self.window = config.decoder_window if causal else config.encoder_window

    def forward(self, x_TD: Tensor, layout: Layout) -> Tensor:
        """[T, D] to [T, D]."""
        drop = self.drop if self.training else 0.0
        seed = dropout_seed(x_TD) if drop else None
        packed = self.query_key_value(x_TD)
        options = Options(self.causal, self.window, drop, seed)
        mixed_THV = attend_projected([packed], self.shape, layout, layout, options)
        mixed: Tensor = self.output(mixed_THV.flatten(1))
        return mixed

    def weights(self, x_TD: Tensor, layout: Layout) -> list[Tensor]:
        """How much each token attends to each: [H, length, length] of each sentence."""
        query, key, _ = parts_of([self.query_key_value(x_TD)], self.shape)
        return weights(query, key, layout, layout, Options(self.causal, self.window))

    def step(self, x_RD: Tensor, cache: LayerCache, step: Step) -> Tensor:
        """The next token of each row, which sees its path in the cache and itself; [R, D] to [R, D]."""
        mixed_RD = step.attend_newest(self.query_key_value(x_RD), self.shape, cache)
        mixed: Tensor = self.output(mixed_RD)
        return mixed


class CrossAttention(nn.Module):
    """Each target token attends to the whole source sentence."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.heads, self.drop = config.heads, config.attention_dropout
        keys, values = config.heads * config.d_k, config.heads * config.d_v
        bias, gain = config.attention_bias, INPUT_GAINS[config.init]
        self.query = projection(config.width, keys, bias=bias, gain=gain)
        self.key_value = projection(config.width, keys, values, bias=bias, gain=gain)
        self.output = projection(values, config.width, bias=bias)

    def forward(self, x_TD: Tensor, encoded_SD: Tensor, target: Layout, source: Layout) -> Tensor:
        """[T, D] to [T, D]."""
        drop = self.drop if self.training else 0.0
        seed = dropout_seed(x_TD) if drop else None
        projections = [self.query(x_TD), self.key_value(encoded_SD)]
        widths = (self.query.out_features // self.heads, self.output.in_features // self.heads)
        heads = Heads(self.heads, *widths)
        mixed_THV = attend_projected(projections, heads, target, source, Options(drop=drop, seed=seed))
        mixed: Tensor = self.output(mixed_THV.flatten(1))
        return mixed

    def weights(self, x_TD: Tensor, encoded_SD: Tensor, target: Layout, source: Layout) -> list[Tensor]:
        """How much each target token attends to each of the source: [H, T, S] of each pair."""
        keys_SHK, _ = self.keys_values(encoded_SD)
        return weights(by_head(self.query(x_TD), self.heads), keys_SHK, target, source)

    def keys_values(self, encoded_SD: Tensor) -> tuple[Tensor, Tensor]:
        """[S, H, K] and [S, H, V]: what the source offers to every target token."""
        packed = self.key_value(encoded_SD)
        keys, values = packed.split([self.query.out_features, self.output.in_features], dim=-1)
        return by_head(keys, self.heads), by_head(values, self.heads)

    def step(self, x_RD: Tensor, cache: LayerCache, step: Step) -> Tensor:
        """[R, D] to [R, D]; the rows of one sentence share its keys and values."""
        query_RHK = by_head(self.query(x_RD), self.heads)
        step.cover(query_RHK, cache.source_keys)
        mixed_RD = step.source.attend(query_RHK, cache.source_keys, cache.source_values)
        mixed: Tensor = self.output(mixed_RD)
        return mixed


class FeedForward(nn.Module):
    """Two projections with a bend between them, the same for each token."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        linear = projection if config.init == "xavier" else nn.Linear  # PyTorch draws up to 1 / sqrt(inputs)
        self.inner = linear(config.width, config.feed_forward, bias=True)
        self.outer = linear(config.feed_forward, config.width, bias=True)
        self.activation = ACTIVATIONS[config.activation]
        self.drop = config.activation_dropout

    def forward(self, x: Tensor) -> Tensor:
        """[..., D] to [..., D]."""
        bent = dropout(self.activation(x, self.inner), self.drop, self.training)
        out: Tensor = self.outer(bent)
        return out
