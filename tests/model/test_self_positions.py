"""RMSNorm, gated layers and rotary positions by plain formulas, and the buckets of T5."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from nmt_cli.decoding.config import SearchConfig
from nmt_cli.errors import UserError
from nmt_cli.model.config import ModelConfig
from nmt_cli.model.self_positions import RelativeBias
from nmt_cli.model.transformer import DecoderLayer, Transformer
from nmt_cli.ragged import Layout
from tests.searching import SEARCHES, translate_ids

SMALL = ModelConfig(encoder_layers=2, decoder_layers=2, width=32, feed_forward=48, heads=4)
ROTARY = replace(
    SMALL,
    norm="pre",
    norm_kind="rms",
    norm_epsilon=1e-5,
    activation="swish",
    gated=True,
    feed_forward_bias=False,
    positions="rotary",
    scale_embeddings=False,
    tie="decoder",
)
RELATIVE = replace(ROTARY, positions="relative", activation="gelu_tanh")

Batch = tuple[Tensor, Tensor, Layout, Layout]


def rms(norm: Any, x: Tensor) -> Tensor:
    out: Tensor = x / (x.square().mean(-1, keepdim=True) + 1e-5).sqrt() * norm.weight
    return out


def swiglu(layer: Any, x: Tensor) -> Tensor:
    gate, value = x @ layer.inner.weight[:48].T, x @ layer.inner.weight[48:].T
    out: Tensor = (gate * torch.sigmoid(gate) * value) @ layer.outer.weight.T
    return out


def rotated(x_TK: Tensor) -> Tensor:
    """Turn channels i and i + K / 2 of token t together by t / 10000^(2i / K), as complex numbers."""
    half = x_TK.shape[1] // 2
    turns = [[t / 10_000 ** (2 * i / x_TK.shape[1]) for i in range(half)] for t in range(len(x_TK))]
    angles = torch.tensor(turns, dtype=x_TK.dtype)
    whole = torch.complex(x_TK[:, :half], x_TK[:, half:]) * torch.polar(torch.ones_like(angles), angles)
    return torch.cat([whole.real, whole.imag], 1)


def attention(queries: Tensor, keys: Tensor, values: Tensor, *, turn: bool, causal: bool) -> Tensor:
    heads = []
    for q, k, v in zip(*(x.chunk(4, 1) for x in (queries, keys, values)), strict=True):
        q, k = (rotated(q), rotated(k)) if turn else (q, k)
        scores = q @ k.T / math.sqrt(q.shape[1])
        if causal:
            scores = scores + torch.full(scores.shape, -torch.inf).triu(1)
        heads.append(scores.softmax(-1) @ v)
    return torch.cat(heads, 1)


def by_formulas(model: Transformer, source_S: Tensor, target_T: Tensor) -> Tensor:
    """Return the logits of one pair of a pre-norm model with RMSNorm, SwiGLU and rotary positions."""

    def own(layer: Any, x: Tensor, causal: bool) -> Tensor:
        projected = rms(layer.after_attention.norm, x) @ layer.attention.query_key_value.weight.T
        mixed = attention(*projected.chunk(3, 1), turn=True, causal=causal)
        out: Tensor = x + mixed @ layer.attention.output.weight.T
        return out

    x = model.source_embedding.matrix[source_S]
    for layer in model.encoder:
        x = own(layer, x, causal=False)
        x = x + swiglu(layer.feed_forward, rms(layer.after_feed_forward.norm, x))
    encoded = rms(model.encoder_norm, x)
    x = model.target_embedding.matrix[torch.cat([target_T.new_zeros(1), target_T[:-1]])]
    for layer in model.decoder:
        assert isinstance(layer, DecoderLayer)
        x = own(layer, x, causal=True)
        query = rms(layer.after_cross.norm, x) @ layer.cross.query.weight.T
        keys, values = (encoded @ layer.cross.key_value.weight.T).chunk(2, 1)
        x = x + attention(query, keys, values, turn=False, causal=False) @ layer.cross.output.weight.T
        x = x + swiglu(layer.feed_forward, rms(layer.after_feed_forward.norm, x))
    return rms(model.decoder_norm, x) @ model.output_matrix.T


@torch.no_grad()
def test_a_rotary_model_with_rms_norm_and_swiglu_is_the_papers_formulas(
    build: Callable[..., Transformer], batch: Callable[..., Batch]
) -> None:
    model = build(ROTARY)
    pairs = batch([9, 1, 30], [12, 5, 1])
    actual = model.logits(model(*pairs))
    slices = zip(pairs[2].slices(), pairs[3].slices(), strict=True)
    expected = torch.cat([by_formulas(model, pairs[0][s], pairs[1][t]) for s, t in slices])
    assert (actual - expected).abs().max() <= 1e-4
    assert expected.std() > 0.1


@pytest.mark.parametrize("causal", [True, False])
def test_distances_have_the_buckets_of_transformers(causal: bool) -> None:
    from transformers.models.t5 import modeling_t5

    buckets: Any = modeling_t5.T5Attention._relative_position_bucket
    distances = torch.arange(-400, 401)
    ours = RelativeBias(RELATIVE, causal=causal).buckets(distances)
    theirs = buckets(distances, not causal, 32, 128)
    assert torch.equal(ours, theirs)
    assert {*ours.tolist()} <= {*range(32)}


@pytest.mark.parametrize("config", [ROTARY, RELATIVE], ids=["rotary", "relative"])
@pytest.mark.parametrize("search", SEARCHES)
def test_beam_search_scores_hypotheses_as_the_forward_pass_does(
    config: ModelConfig, search: str, build: Callable[..., Transformer]
) -> None:
    """Hypotheses that share tokens, and sentences that join and leave, keep positions right."""
    model = build(config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("positions.table"):
                parameter.normal_()
            elif parameter.dim() == 2:
                parameter.mul_(2)
    sources = [[*range(2, 2 + n)] for n in (1, 20, 3, 7, 12)]
    settings = SearchConfig(beam=3, rows=6, cap_ratio=0.0, cap_extra=25, unknown=True)
    found = translate_ids([model], sources, settings, SEARCHES[search])
    for source, hypotheses in zip(sources, found, strict=True):
        for one in hypotheses:
            source_S, target_T = torch.tensor([*source, 0]), torch.tensor([*one.tokens, 0])
            layouts = Layout.of([len(source_S)]), Layout.of([len(target_T)])
            with torch.inference_mode():
                log_probs = model.logits(model(source_S, target_T, *layouts)).log_softmax(-1)
            expected = log_probs.gather(1, target_T[:, None])[:, 0]
            worst = (torch.tensor(one.token_scores) - expected).abs().max()
            assert worst <= 1e-4


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"positions": "relative", "window": 5}, "window must be 0"),
        ({"positions": "rotary", "key_width": 3, "value_width": 8}, "a head has 3 key channels .key_width."),
        ({"positions": "rotary", "first_position": 2}, "first_position has no effect with rotary"),
    ],
    ids=str,
)
def test_settings_that_contradict_each_other_are_refused(settings: dict[str, Any], problem: str) -> None:
    with pytest.raises(UserError, match=problem):
        replace(SMALL, **settings)
