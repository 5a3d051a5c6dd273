"""A post-norm Transformer in NumPy, independent of ours: log-probabilities of given pairs."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy
from numpy.typing import NDArray

Array = NDArray[numpy.float64]


@dataclass
class PostNorm:
    """The weights by fairseq's names, `[outputs, inputs]`, and what the names do not say."""

    weights: Mapping[str, Array]
    heads: int
    epsilon: float
    activation: Callable[[Array], Array]

    def linear(self, name: str, x: Array) -> Array:
        return x @ self.weights[f"{name}.weight"].T + self.weights[f"{name}.bias"]

    def norm(self, name: str, x: Array) -> Array:
        centred = x - x.mean(-1, keepdims=True)
        scaled = centred / numpy.sqrt((centred**2).mean(-1, keepdims=True) + self.epsilon)
        normed: Array = scaled * self.weights[f"{name}.weight"] + self.weights[f"{name}.bias"]
        return normed

    def attention(self, name: str, x: Array, memory: Array, *, causal: bool) -> Array:
        query, key, value = (
            self.linear(f"{name}.{kind}_proj", of).reshape(len(of), self.heads, -1).transpose(1, 0, 2)
            for kind, of in (("q", x), ("k", memory), ("v", memory))
        )
        scores = query @ key.transpose(0, 2, 1) / numpy.sqrt(query.shape[-1])
        if causal:
            scores = numpy.where(numpy.tri(len(x), dtype=bool), scores, -numpy.inf)
        shares = numpy.exp(scores - scores.max(-1, keepdims=True))
        shares /= shares.sum(-1, keepdims=True)
        return self.linear(f"{name}.out_proj", (shares @ value).transpose(1, 0, 2).reshape(len(x), -1))

    def stack(self, name: str, x: Array, memory: Array | None = None) -> Array:
        number = 0
        while f"{name}.layers.{number}.fc1.weight" in self.weights:
            layer = f"{name}.layers.{number}"
            attended = self.attention(f"{layer}.self_attn", x, x, causal=memory is not None)
            x = self.norm(f"{layer}.self_attn_layer_norm", x + attended)
            if memory is not None:
                attended = self.attention(f"{layer}.encoder_attn", x, memory, causal=False)
                x = self.norm(f"{layer}.encoder_attn_layer_norm", x + attended)
            inner = self.linear(f"{layer}.fc2", self.activation(self.linear(f"{layer}.fc1", x)))
            x, number = self.norm(f"{layer}.final_layer_norm", x + inner), number + 1
        assert number > 0
        return x

    def log_probabilities(self, source: Array, target: Array, output: Array, bias: Any = 0.0) -> Array:
        """Return those of each entry at each position. `source` and `target` are embedded inputs."""
        logits = self.stack("decoder", target, self.stack("encoder", source)) @ output.T + bias
        top = logits.max(-1, keepdims=True)
        difference: Array = logits - top - numpy.log(numpy.exp(logits - top).sum(-1, keepdims=True))
        return difference
