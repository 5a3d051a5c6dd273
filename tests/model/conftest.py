"""Random ragged batches, and the model written again with plain PyTorch on padded sentences."""

import math
from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence

from nmt_cli.model.config import ModelConfig
from nmt_cli.model.embedding import Embedding
from nmt_cli.model.layers import CrossAttention, FeedForward, Residual, SelfAttention, Ssru
from nmt_cli.model.transformer import DecoderLayer, EncoderLayer, Transformer
from nmt_cli.ragged import Layout
from tests.model.models import model_of

VOCABULARY = 40

Batch = tuple[Tensor, Tensor, Layout, Layout]


def _batch(sources: Sequence[int], targets: Sequence[int], seed: int = 0) -> Batch:
    """Return random sentences of these lengths. A sentence depends only on its index and the seed."""

    def ids(lengths: Sequence[int], salt: int) -> Tensor:
        draws = [torch.Generator().manual_seed(1000 * seed + 2 * i + salt) for i in range(len(lengths))]
        tokens = [
            torch.randint(VOCABULARY, (n,), generator=draw) for n, draw in zip(lengths, draws, strict=True)
        ]
        return torch.cat(tokens) if tokens else torch.zeros(0, dtype=torch.int64)

    return ids(sources, 0), ids(targets, 1), Layout.of(sources), Layout.of(targets)


@pytest.fixture(scope="session")
def cuda() -> str:
    """Return the device of tests marked `gpu`, which are skipped without a GPU."""
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    return "cuda"


@pytest.fixture(scope="session")
def batch() -> Callable[..., Batch]:
    """Return `batch(source_lengths, target_lengths, seed=0)`: arguments of `Transformer.forward`."""
    return _batch


@pytest.fixture(scope="session")
def build() -> Callable[..., Transformer]:
    """Return `build(config)`, which creates a random model with 40 subwords, in evaluation mode."""

    def build(config: ModelConfig, seed: int = 1) -> Transformer:
        torch.manual_seed(seed)
        model = model_of(config, VOCABULARY).eval()
        for parameter in model.parameters():
            if parameter.dim() == 1:
                nn.init.normal_(parameter, mean=float(parameter.detach().mean()), std=0.2)
        return model

    return build


@pytest.fixture(scope="session")
def hand_padded() -> Callable[..., Tensor]:
    """Return `hand_padded(model, *batch)`, which computes the logits [T, V] with plain PyTorch and masks."""

    def logits(
        model: Transformer, source_S: Tensor, target_T: Tensor, source: Layout, target: Layout
    ) -> Tensor:
        sources = pad_sequence([source_S[part] for part in source.slices()], batch_first=True)
        start = target_T.new_zeros(1)
        shifted = [torch.cat([start, target_T[part]])[:-1] for part in target.slices()]
        inputs = pad_sequence(shifted, batch_first=True)
        columns = torch.arange(sources.shape[1], device=sources.device)
        real_BS = columns < source.lengths.to(sources.device)[:, None]
        x_BSD = _embedded(model.source_embedding, sources)
        for layer in model.encoder:
            assert isinstance(layer, EncoderLayer)
            x_BSD = _encoder_layer(layer, x_BSD, real_BS)
        encoded_BSD = model.encoder_norm(x_BSD)
        x_BTD = _embedded(model.target_embedding, inputs)
        for layer in model.decoder:
            assert isinstance(layer, DecoderLayer)
            x_BTD = _decoder_layer(layer, x_BTD, encoded_BSD, real_BS)
        logits_BTV = model.decoder_norm(x_BTD) @ model.output_matrix.T
        return torch.cat([row[:n] for row, n in zip(logits_BTV, target.lengths.tolist(), strict=True)])

    return logits


def _embedded(embedding: Embedding, ids_BT: Tensor) -> Tensor:
    matrix = embedding.matrix
    count, width = ids_BT.shape[1], matrix.shape[1]
    if isinstance(embedding.positions, nn.Module) and list(embedding.positions.parameters()):
        positions_TD = next(embedding.positions.parameters())[:count]
    else:
        rates = [10_000 ** (-2 * i / width) for i in range(width // 2)]
        rows = [[wave(t * rate) for rate in rates for wave in (math.sin, math.cos)] for t in range(count)]
        positions_TD = torch.tensor(rows).reshape(count, width).to(matrix)
    return matrix[ids_BT] * math.sqrt(width) + positions_TD


def _encoder_layer(layer: EncoderLayer, x: Tensor, real_BS: Tensor) -> Tensor:
    x = _added(layer.after_attention, x, lambda y: _own_attention(layer.attention, y, real_BS))
    return _added(layer.after_feed_forward, x, lambda y: _feed_forward(layer.feed_forward, y))


def _decoder_layer(layer: DecoderLayer, x: Tensor, encoded: Tensor, real_BS: Tensor) -> Tensor:
    x = _added(layer.after_attention, x, lambda y: _history(layer.attention, y))
    x = _added(layer.after_cross, x, lambda y: _cross_attention(layer.cross, y, encoded, real_BS))
    return _added(layer.after_feed_forward, x, lambda y: _feed_forward(layer.feed_forward, y))


def _history(history: SelfAttention | Ssru, x_BTD: Tensor) -> Tensor:
    if isinstance(history, SelfAttention):
        return _own_attention(history, x_BTD, x_BTD.new_ones(x_BTD.shape[:2], dtype=torch.bool))
    state, states = torch.zeros_like(x_BTD[:, 0]), []
    for x in x_BTD.unbind(1):
        gate = torch.sigmoid(_linear(history.forget, x))
        state = gate * state + (1 - gate) * _linear(history.value, x)
        states.append(F.relu(state))
    return torch.stack(states, 1)


def _added(residual: Residual, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
    norm = residual.norm
    assert isinstance(norm, nn.LayerNorm)
    if not residual.post:
        return x + sublayer(F.layer_norm(x, x.shape[-1:], norm.weight, norm.bias, norm.eps))
    return F.layer_norm(x + sublayer(x), x.shape[-1:], norm.weight, norm.bias, norm.eps)


def _own_attention(attention: SelfAttention, x: Tensor, real_BS: Tensor) -> Tensor:
    heads, keys, values = attention.heads
    sizes = [heads * width for width in (keys, keys, values)]
    query, key, value = torch.split(_linear(attention.query_key_value, x), sizes, dim=-1)
    positions = torch.arange(x.shape[1], device=x.device)
    back = positions[:, None] - positions
    allowed = real_BS[:, None, :].expand(-1, x.shape[1], -1)
    if attention.causal:
        allowed = allowed & (back >= 0)
    if attention.window:
        near = (back <= attention.window // 2) & (-back <= (attention.window - 1) // 2)
        allowed = allowed & near | torch.eye(x.shape[1], dtype=torch.bool, device=x.device)
    return _linear(attention.output, _mixed(query, key, value, allowed, attention.heads.number))


def _cross_attention(cross: CrossAttention, x: Tensor, encoded: Tensor, real_BS: Tensor) -> Tensor:
    query = _linear(cross.query, x)
    sizes = [query.shape[-1], cross.output.in_features]
    key, value = torch.split(_linear(cross.key_value, encoded), sizes, dim=-1)
    return _linear(cross.output, _mixed(query, key, value, real_BS[:, None, :], cross.heads.number))


def _mixed(query: Tensor, key: Tensor, value: Tensor, allowed_BTS: Tensor, heads: int) -> Tensor:
    q_BHTK, k_BHSK, v_BHSV = (x.view(*x.shape[:2], heads, -1).transpose(1, 2) for x in (query, key, value))
    scores = q_BHTK @ k_BHSK.mT / math.sqrt(q_BHTK.shape[-1])
    weights = scores.masked_fill(~allowed_BTS[:, None], -torch.inf).softmax(-1)
    return (weights.to(value.dtype) @ v_BHSV).transpose(1, 2).flatten(2)


def _feed_forward(layer: FeedForward, x: Tensor) -> Tensor:
    return _linear(layer.outer, layer.activation(_linear(layer.inner, x)))


def _linear(linear: nn.Linear, x: Tensor) -> Tensor:
    return F.linear(x, linear.weight, linear.bias)
