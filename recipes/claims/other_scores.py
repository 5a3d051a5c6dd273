"""Attention with other scores than the scaled dot product, put into a model from outside.

- "dot": q·k, without division by sqrt(d_k).
- "scaled": q·k / sqrt(d_k), as in the paper. A test compares it with the attention of the package.
- "additive": v·tanh(q + k) with a learned vector v for each head (Bahdanau et al. 2015).

`change` replaces the attention modules of a model. So nothing in the package knows these scores.
"""

import math
from collections.abc import Iterator
from typing import Literal

import torch
from torch import Tensor, nn

from nmt_cli.attention.projections import parts_of
from nmt_cli.model.layers import CrossAttention, SelfAttention
from nmt_cli.model.transformer import DecoderLayer, EncoderLayer, Transformer
from nmt_cli.ragged import Layout

Kind = Literal["scaled", "dot", "additive"]


class Changed(nn.Module):
    """An attention module with the weights of one of the package, and with other scores."""

    def __init__(self, own: SelfAttention | CrossAttention, kind: Kind) -> None:
        """Take the weights of `own`, but begin with queries and keys of variance 1, as the paper assumes."""
        super().__init__()
        self.own, self.kind = own, kind
        self.entropy, self.slope = 0.0, 0.0
        """Means over the queries of the last call: the entropy of the weights, and the sum of the derivatives
        of each weight by its own score. Both are 0 if each query attends to one token."""

        for weights in self.query_key_weights():
            nn.init.normal_(weights.data, std=weights.shape[1] ** -0.5)
        self.score_HK: Tensor | None = None
        if kind == "additive":
            shape = own.heads.number, own.heads.keys
            self.score_HK = nn.Parameter(torch.empty(shape).normal_(std=own.heads.keys**-0.5))

    def query_key_weights(self) -> list[Tensor]:
        """Return the weights of queries and keys as views."""
        columns = self.own.heads.number * self.own.heads.keys
        if isinstance(self.own, SelfAttention):
            return [self.own.query_key_value.weight[: 2 * columns]]
        return [self.own.query.weight, self.own.key_value.weight[:columns]]

    def query_key_gradients(self) -> list[Tensor]:
        """Return the gradients of the weights of queries and keys."""
        columns = self.own.heads.number * self.own.heads.keys
        if isinstance(self.own, SelfAttention):
            linears = [(self.own.query_key_value, 2 * columns)]
        else:
            linears = [(self.own.query, columns), (self.own.key_value, columns)]
        return [linear.weight.grad[:rows] for linear, rows in linears if linear.weight.grad is not None]

    def forward(self, x_TD: Tensor, *others: Tensor | Layout) -> Tensor:
        """Return [T, D], with the arguments of the module that this one replaces."""
        if isinstance(self.own, SelfAttention):
            (queries,) = (keys,) = others
            projections = [self.own.query_key_value(x_TD)]
        else:
            encoded_SD, queries, keys = others
            projections = [self.own.query(x_TD), self.own.key_value(encoded_SD)]
        assert isinstance(queries, Layout) and isinstance(keys, Layout)
        parts = parts_of(projections, self.own.heads)
        q_BHTK, k_BHSK, v_BHSV = (
            padded(part, layout) for part, layout in zip(parts, (queries, keys, keys), strict=True)
        )
        scores_BHTS = scores(self.kind, q_BHTK, k_BHSK, self.score_HK)
        hidden_BS = torch.arange(scores_BHTS.shape[3]) >= keys.lengths[:, None]
        scores_BHTS = scores_BHTS.masked_fill(hidden_BS[:, None, None], -torch.inf)
        if isinstance(self.own, SelfAttention) and self.own.causal:
            later_TS = torch.ones(scores_BHTS.shape[2:], dtype=torch.bool).triu(1)
            scores_BHTS = scores_BHTS.masked_fill(later_TS, -torch.inf)
        weights_BHTS = scores_BHTS.softmax(-1)
        with torch.no_grad():
            self.entropy = _mean(torch.special.entr(weights_BHTS).sum(-1), queries)
            self.slope = _mean(1 - weights_BHTS.square().sum(-1), queries)
        mixed_THV = (weights_BHTS @ v_BHSV).transpose(1, 2)[queries.segments, queries.positions]
        out: Tensor = self.own.output(mixed_THV.flatten(1))
        return out


def _mean(values_BHT: Tensor, layout: Layout) -> float:
    """Return the mean over all tokens and heads, without padding."""
    return float(values_BHT.transpose(1, 2)[layout.segments, layout.positions].mean())


def change(model: Transformer, kind: Kind) -> list[Changed]:
    """Let all attention of `model` use scores of this kind, and return its new modules, encoder first."""
    return list(_changed(model, kind))


def _changed(model: Transformer, kind: Kind) -> Iterator[Changed]:
    for layer in (*model.encoder, *model.decoder):
        assert isinstance(layer, EncoderLayer | DecoderLayer) and isinstance(layer.attention, SelfAttention)
        layer.attention = own = Changed(layer.attention, kind)  # type: ignore[assignment]
        yield own
        if isinstance(layer, DecoderLayer):
            layer.cross = cross = Changed(layer.cross, kind)  # type: ignore[assignment]
            yield cross


def query_key_gradient(modules: list[Changed]) -> float:
    """Return the norm of the gradient of all query and key projections."""
    squares = (float(part.square().sum()) for module in modules for part in module.query_key_gradients())
    return math.sqrt(sum(squares))


def padded(x_THC: Tensor, layout: Layout) -> Tensor:
    """Return [B, H, longest, C] with zeros after the end of each sentence."""
    shape = len(layout.lengths), int(layout.lengths.max()), *x_THC.shape[1:]
    out = x_THC.new_zeros(shape).index_put((layout.segments, layout.positions), x_THC)
    return out.transpose(1, 2)


def scores(kind: Kind, q_BHTK: Tensor, k_BHSK: Tensor, score_HK: Tensor | None = None) -> Tensor:
    """Return [B, H, T, S]: the score of each query and key."""
    if kind == "additive":
        assert score_HK is not None
        sums_BHTSK = (q_BHTK[:, :, :, None] + k_BHSK[:, :, None]).tanh()
        return torch.einsum("bhtsk,hk->bhts", sums_BHTSK, score_HK)
    scores_BHTS = q_BHTK @ k_BHSK.mT
    return scores_BHTS if kind == "dot" else scores_BHTS / q_BHTK.shape[-1] ** 0.5
