"""The sub-layers of the Transformer, and the residual connection around them.

A batch is ragged: all tokens of all sentences are rows of one tensor, and a `Layout` has the lengths of the
sentences. Suffixes of names are the axes of a tensor:

- T target tokens, S source tokens. In self-attention, T are the tokens of either side.
- R rows of a decoding step, each the newest token of a hypothesis.
- D channels of a token (d_model), F channels inside a feed-forward layer (d_ff).
- H heads, K channels of a head's queries and keys (d_k), V channels of a head's values (d_v).
"""

from collections.abc import Callable, Iterable, Mapping
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nmt_cli.attention.attention import attend_newest, attend_projected
from nmt_cli.attention.attention_options import Options
from nmt_cli.attention.plain_attention import weights
from nmt_cli.attention.projections import Heads, by_head, parts_of, turned
from nmt_cli.model.config import ModelConfig
from nmt_cli.model.embedding import Sinusoids
from nmt_cli.model.keyed_dropout import dropout, dropout_seed
from nmt_cli.model.layer_cache import LayerCache, Step
from nmt_cli.model.pointwise.relu_and_dropout import relu_linear
from nmt_cli.model.self_positions import RelativeBias, SelfPositions
from nmt_cli.ragged import Layout

INPUT_GAINS = {"xavier": 1.0, "smaller": 0.5**0.5, "depth-scaled": 0.5**0.5}
"""For each `init`, the factor on the initial range of the query, key and value projections."""


def projection(inputs: int, *outputs: int, bias: bool, gain: float = 1.0) -> nn.Linear:
    """Create a linear layer that computes several projections of one input side by side.

    outputs: the number of outputs of each projection.
    gain: a factor on the range of the weights.

    The weights of a projection are uniform within ± gain x sqrt(6 / (inputs + outputs)), after Glorot and
    Bengio (2010), as if it were a layer of its own. Biases are 0.
    """
    linear = nn.Linear(inputs, sum(outputs), bias=bias)
    for rows in torch.split(linear.weight.detach(), list(outputs)):
        nn.init.xavier_uniform_(rows, gain)
    if bias:
        nn.init.zeros_(linear.bias)
    return linear


def scale_down(linears: Iterable[nn.Linear], sublayers: int) -> None:
    """Divide the weights and biases of `linears` by sqrt(`sublayers`).

    If these are the last layers of all sub-layers of a stack, the sum of the sub-layers' outputs begins as
    large as a single one, whatever the depth.
    """
    with torch.no_grad():
        for linear in linears:
            for parameter in linear.parameters():
                parameter.div_(sublayers**0.5)


def norm_of(config: ModelConfig) -> nn.LayerNorm | nn.RMSNorm:
    """Create the norm that `config.norm_kind` names."""
    kind = nn.LayerNorm if config.norm_kind == "layer" else nn.RMSNorm
    return kind(config.width, eps=config.norm_epsilon)


class Residual(nn.Module):
    """The residual connection around a sub-layer, with dropout and layer norm.

    Post-norm, as in the paper: norm(x + dropout(sublayer(x))). Pre-norm: x + dropout(sublayer(norm(x))).
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.norm = norm_of(config)
        self.post = config.norm == "post"
        self.drop = config.residual_dropout

    def forward(
        self, x: Tensor, sublayer: Callable[[Tensor], Tensor], layout: Layout | None = None
    ) -> Tensor:
        """Return `x` [T, D] plus the output of `sublayer`, with norm and dropout, in the dtype of `x`. In
        training, `layout` has the segments of the rows."""
        exact = self.norm.weight.dtype
        if self.post:
            normed: Tensor = self.norm(x.to(exact) + dropout(sublayer(x), self.drop, self.training, layout))
            return normed.to(x.dtype)
        return x + dropout(sublayer(self.norm(x.to(exact))), self.drop, self.training, layout)


class SelfAttention(nn.Module):
    """Multi-head self-attention within each sentence. If `causal`, a token does not see later tokens."""

    def __init__(self, config: ModelConfig, positions: SelfPositions | None = None, *, causal: bool) -> None:
        super().__init__()
        self.heads, self.positions = Heads(config.heads, config.d_k, config.d_v), positions
        outputs = [config.heads * width for width in (config.d_k, config.d_k, config.d_v)]
        gain = INPUT_GAINS[config.init]
        self.query_key_value = projection(config.width, *outputs, bias=config.attention_bias, gain=gain)
        self.output = projection(outputs[2], config.width, bias=config.attention_bias)
        self.causal, self.drop = causal, config.attention_dropout
        self.window = config.window

    def forward(self, x_TD: Tensor, layout: Layout) -> Tensor:
        """Return [T, D]: the attention of each token within its sentence, projected back to D channels."""
        drop = self.drop if self.training else 0.0
        seed = dropout_seed(x_TD) if drop else None
        options = Options(self.causal, self.window, drop, seed, self._bias(layout))
        projected = self._projected(x_TD, layout)
        mixed_THV = attend_projected([projected], self.heads, layout, layout, options)
        out: Tensor = self.output(mixed_THV.flatten(1))
        return out

    def weights(self, x_TD: Tensor, layout: Layout) -> list[Tensor]:
        """Return for each sentence the attention weights [H, queries, keys], without dropout."""
        query, key, _ = parts_of([self._projected(x_TD, layout)], self.heads)
        options = Options(self.causal, self.window, bias_HD=self._bias(layout))
        return weights(query, key, layout, layout, options)

    def _projected(self, x_TD: Tensor, layout: Layout) -> Tensor:
        """Return queries, keys and values of all heads, by one matrix product, with rotary positions."""
        projected: Tensor = self.query_key_value(x_TD)
        if not isinstance(self.positions, Sinusoids):
            return projected
        return turned(projected, self.heads, self.positions(layout.positions, layout.longest))

    def _bias(self, layout: Layout) -> Tensor | None:
        """Return the bias of scores by distance, or None without relative positions."""
        return self.positions.whole(layout.longest) if isinstance(self.positions, RelativeBias) else None

    def step(self, x_RD: Tensor, cache: LayerCache, step: Step) -> Tensor:
        """Store the newest tokens in `cache`. Return [R, D]: the attention of each over its hypothesis."""
        projected = self.query_key_value(x_RD)
        if step.waves_RK is not None:
            projected = turned(projected, self.heads, step.waves_RK)
        mixed_RC = attend_newest(
            projected, self.heads, step.nodes_RH, cache.own_keys, cache.own_values, step.own
        )
        out: Tensor = self.output(mixed_RC)
        return out


class CrossAttention(nn.Module):
    """Multi-head attention of each target token to all tokens of its source sentence."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.heads, self.drop = Heads(config.heads, config.d_k, config.d_v), config.attention_dropout
        keys, values = config.heads * config.d_k, config.heads * config.d_v
        bias, gain = config.attention_bias, INPUT_GAINS[config.init]
        self.query = projection(config.width, keys, bias=bias, gain=gain)
        self.key_value = projection(config.width, keys, values, bias=bias, gain=gain)
        self.output = projection(values, config.width, bias=bias)

    def forward(self, x_TD: Tensor, encoded_SD: Tensor, target: Layout, source: Layout) -> Tensor:
        """Return [T, D]: the attention of each target token to its source sentence, projected back."""
        drop = self.drop if self.training else 0.0
        seed = dropout_seed(x_TD) if drop else None
        projections = [self.query(x_TD), self.key_value(encoded_SD)]
        mixed_THV = attend_projected(projections, self.heads, target, source, Options(drop=drop, seed=seed))
        out: Tensor = self.output(mixed_THV.flatten(1))
        return out

    def weights(self, x_TD: Tensor, encoded_SD: Tensor, target: Layout, source: Layout) -> list[Tensor]:
        """Return for each pair the attention weights [H, target tokens, source tokens], without dropout."""
        keys_SHK, _ = self.keys_values(encoded_SD)
        return weights(by_head(self.query(x_TD), self.heads.number), keys_SHK, target, source)

    def keys_values(self, encoded_SD: Tensor) -> tuple[Tensor, Tensor]:
        """Return keys [S, H, K] and values [S, H, V] of the source. Decoding computes them only once."""
        number, key_width, value_width = self.heads
        columns = [number * key_width, number * value_width]
        keys, values = self.key_value(encoded_SD).split(columns, dim=-1)
        return by_head(keys, number), by_head(values, number)

    def step(self, x_RD: Tensor, cache: LayerCache, step: Step) -> Tensor:
        """Return [R, D]: the attention of each newest token to its source."""
        query_RHK = by_head(self.query(x_RD), self.heads.number)
        mixed_RC = step.source.attend(query_RHK, cache.source_keys, cache.source_values)
        out: Tensor = self.output(mixed_RC)
        return out


class Ssru(nn.Module):
    """The simpler simple recurrent unit (Kim et al. 2019), an alternative to self-attention in the decoder.

    The state c_t of token t is a gated mean of the tokens up to t: c_t = f_t x c_(t-1) + (1 - f_t) x W x_t.
    The gate f_t is a sigmoid of x_t, and the output is relu(c_t). A decoding step costs the same for any
    length.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.value = projection(config.width, config.width, bias=False)
        self.forget = projection(config.width, config.width, bias=True)

    def forward(self, x_TD: Tensor, layout: Layout) -> Tensor:
        """Return [T, D]: for each token the ReLU of its state, a gated mean of its sentence so far."""
        gate_TD, new_TD = self._gates(x_TD)
        gate_TD = gate_TD.masked_fill((layout.positions == 0)[:, None], 0.0)
        return F.relu(scanned(gate_TD, new_TD, layout.longest)).to(x_TD.dtype)

    def step(self, x_RD: Tensor, cache: LayerCache, step: Step) -> Tensor:
        """Return [R, D]: the output for the newest token of each row. Replace the rows' states in `cache`."""
        assert cache.states is not None
        gate_RD, new_RD = self._gates(x_RD)
        states = cache.states.view(-1, cache.states.shape[2])
        state_RD = gate_RD * states.index_select(0, step.rows.from_slots) + new_RD
        count = len(step.nodes_RH)  # without dummy rows
        states.index_copy_(0, step.rows.to_slots[:count], state_RD[:count])
        return F.relu(state_RD).to(x_RD.dtype)

    def _gates(self, x_TD: Tensor) -> tuple[Tensor, Tensor]:
        """Return f_t and (1 - f_t) x W x_t of each token, both [T, D] and at least in fp32."""
        precise = torch.promote_types(x_TD.dtype, torch.float32)
        gate_TD = self.forget(x_TD).to(precise).sigmoid()
        return gate_TD, (1 - gate_TD) * self.value(x_TD)


def scanned(gate_TD: Tensor, new_TD: Tensor, longest: int) -> Tensor:
    """Return c_t = gate_t x c_(t-1) + new_t for all tokens of a flat batch.

    The gate of each sentence's first token must be 0, so that nothing passes from one sentence to the next.
    `longest` is at least the length of the longest sentence. The scan is parallel: it takes log2(`longest`)
    steps.
    """
    reach, longest = 1, min(longest, len(new_TD))  # `longest` may be rounded up
    while reach < longest:
        back = (0, 0, reach, 0)
        new_TD = new_TD + gate_TD * F.pad(new_TD[:-reach], back)
        gate_TD = gate_TD * F.pad(gate_TD[:-reach], back)
        reach *= 2
    return new_TD


ACTIVATIONS: Mapping[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_tanh": partial(F.gelu, approximate="tanh"),
    "swish": F.silu,
}
"""The function of each `activation`."""


class FeedForward(nn.Module):
    """The position-wise feed-forward layer: linear, activation, linear. All tokens share the weights. If
    gated, the first linear layer has two projections: the activation of the first times the second."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        inner, bias = [config.feed_forward] * (1 + config.gated), config.feed_forward_bias
        if config.init == "xavier":
            self.inner = projection(config.width, *inner, bias=bias)
            self.outer = projection(config.feed_forward, config.width, bias=bias)
        else:
            # By default PyTorch draws weights and biases within ±1 / sqrt(inputs), which is `init=smaller`.
            self.inner = nn.Linear(config.width, sum(inner), bias=bias)
            self.outer = nn.Linear(config.feed_forward, config.width, bias=bias)
        self.activation, self.gated = ACTIVATIONS[config.activation], config.gated
        self.drop = config.activation_dropout

    def forward(self, x: Tensor, layout: Layout | None = None) -> Tensor:
        """Return [T, D] for `x` [T, D]. Dropout follows the activation, in training only. Then `layout` has
        the segments of the rows."""
        if self.gated:
            gate_F, value_F = self.inner(x).chunk(2, -1)
            activated_F = self.activation(gate_F) * value_F
        elif self.activation is F.relu:
            activated_F = relu_linear(x, self.inner)
        else:
            activated_F = self.activation(self.inner(x))
        activated_F = dropout(activated_F, self.drop, self.training, layout)
        out: Tensor = self.outer(activated_F)
        return out
