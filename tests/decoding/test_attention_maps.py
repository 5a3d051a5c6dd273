"""The attention weights of every head, against the model's own computation."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from nmt_cli.attention.projections import by_head
from nmt_cli.decoding.attention_maps import (
    CERTAINTY,
    AttentionMaps,
    alignment,
    attention_maps,
    source_attention,
)
from nmt_cli.model.config import ModelConfig
from nmt_cli.model.layers import CrossAttention, SelfAttention
from nmt_cli.model.transformer import DecoderLayer, EncoderLayer, Transformer
from nmt_cli.text.vocabulary import Vocabulary

VOCABULARY = 12
END = 0
PAIRS = [([5, 3, 8], [4, 4, 9, 2, 7]), ([], [3]), ([7, 7, 4, 9, 10, 11, 3], []), ([6, 1], [8, 2])]
PLAIN = {"encoder_layers": 2, "decoder_layers": 3, "width": 16, "heads": 2, "feed_forward": 32}

Attention = SelfAttention | CrossAttention
Call = tuple[Attention, tuple[Tensor, ...], Tensor]
"""An attention, its inputs and its output."""


def known(size: int) -> Vocabulary:
    return Vocabulary(("",) * size, end=END, start=END, unknown=1)


@pytest.fixture(scope="module")
def build() -> Callable[..., Transformer]:
    """Return `build(**settings)`, which makes a float64 model in evaluation mode with uneven attention."""

    def build(**settings: object) -> Transformer:
        torch.manual_seed(3)
        config = ModelConfig(**{**PLAIN, **settings})  # type: ignore[arg-type]  # a table's settings
        model = Transformer(config, known(VOCABULARY), known(VOCABULARY), joint=True).double().eval()
        for module in model.modules():
            if isinstance(module, nn.Linear):
                module.weight.data *= 2
        return model

    return build


def watched(model: Transformer) -> tuple[list[Call], list[AttentionMaps]]:
    """Record the inputs and outputs of every attention for a batch of pairs. Return them and the maps."""
    calls: list[Call] = []
    hooks = [
        module.register_forward_hook(lambda *call: calls.append(call))
        for module in model.modules()
        if isinstance(module, Attention)
    ]
    maps = attention_maps(model, PAIRS)
    for hook in hooks:
        hook.remove()
    return calls, maps


def values(attention: Attention, inputs: tuple[Tensor, ...]) -> Tensor:
    """Return [tokens, heads, channels]: the values that attention averages."""
    if isinstance(attention, CrossAttention):
        return attention.keys_values(inputs[1])[1]
    channels = attention.output.in_features
    packed: Tensor = attention.query_key_value(inputs[0])
    return by_head(packed[:, -channels:], attention.heads.number)


def named(model: Transformer) -> dict[Attention, tuple[str, int]]:
    """Yield the kind and the layer of every attention."""
    kinds: dict[Attention, tuple[str, int]] = {}
    for i, layer in enumerate(model.encoder):
        assert isinstance(layer, EncoderLayer)
        kinds[layer.attention] = ("encoder", i)
    for i, layer in enumerate(model.decoder):
        assert isinstance(layer, DecoderLayer)
        assert isinstance(layer.attention, SelfAttention)
        kinds |= {layer.attention: ("decoder", i), layer.cross: ("cross", i)}
    return kinds


SETTINGS = {
    "plain": {},
    "heads of other widths, biases": {"key_width": 6, "value_width": 10, "attention_bias": True},
    "decoder apart": {"decoder_heads": 4, "decoder_feed_forward": 24},
    "pre-norm, windows": {"norm": "pre", "window": 3},
}


@torch.no_grad()
@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
def test_weights_times_values_give_the_output_of_the_model(
    build: Callable[..., Transformer], settings: dict[str, object]
) -> None:
    model = build(**settings)
    calls, maps = watched(model)
    kinds = named(model)
    assert {kinds[attention] for attention, _, _ in calls} == set(kinds.values())
    for attention, inputs, output in calls:
        kind, layer = kinds[attention]
        sizes = [len(pair.target if kind == "decoder" else pair.source) for pair in maps]
        each = torch.split(values(attention, inputs), sizes)
        mixed = [
            torch.einsum("hts,shv->thv", getattr(pair, kind)[layer], value_SHV)
            for pair, value_SHV in zip(maps, each, strict=True)
        ]
        ours = attention.output(torch.cat(mixed).flatten(1))
        torch.testing.assert_close(ours, output, rtol=0, atol=1e-12)


def test_rows_are_queries_and_columns_are_keys(build: Callable[..., Transformer]) -> None:
    maps = attention_maps(build(), PAIRS)
    for pair, (source, target) in zip(maps, PAIRS, strict=True):
        assert (pair.source, pair.target) == ([*source, END], [*target, END])
        s, t = len(source) + 1, len(target) + 1
        assert pair.encoder.shape == (2, 2, s, s)
        assert pair.decoder.shape == (3, 2, t, t)
        assert pair.cross.shape == (3, 2, t, s)
        for weights in (pair.encoder, pair.decoder, pair.cross):
            torch.testing.assert_close(weights.sum(-1), torch.ones_like(weights[..., 0]))
        assert not pair.decoder.triu(1).any()


def test_the_maps_of_a_pair_do_not_depend_on_the_rest_of_the_batch(build: Callable[..., Transformer]) -> None:
    model = build()
    for pair, together in zip(PAIRS, attention_maps(model, PAIRS), strict=True):
        (alone,) = attention_maps(model, [pair])
        torch.testing.assert_close(alone.cross, together.cross, rtol=0, atol=1e-12)
    assert attention_maps(model, []) == []


def test_maps_that_were_not_recorded_are_an_error(
    build: Callable[..., Transformer], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = build()
    monkeypatch.setattr(model, "encode", lambda tokens, _: torch.zeros(len(tokens), 16).double())
    with pytest.raises(RuntimeError, match=r"not recorded: \[0, 3, 3\]"):
        attention_maps(model, PAIRS)


def test_no_hooks_remain_in_the_model(build: Callable[..., Transformer]) -> None:
    model = build()
    attention_maps(model, PAIRS)
    assert not any(module._forward_pre_hooks for module in model.modules())


CROSS = torch.tensor(
    [
        [[[0.8, 0.1, 0.1], [0.8, 0.1, 0.1], [0.8, 0.1, 0.1]]] * 2,  # a lower layer
        [
            [[0.3, 0.4, 0.3], [0.4, 0.3, 0.3], [0.3, 0.3, 0.4]],
            [[0.0, 0.1, 0.9], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]],
        ],
    ]
)
"""Two layers of two heads. The last head is certain."""


@pytest.mark.parametrize(("guided", "aligned"), [(False, [1, 1]), (True, [1, 0])], ids=["certain", "guided"])
def test_a_token_is_aligned_by_the_guided_head_or_by_certain_heads(guided: bool, aligned: list[int]) -> None:
    none = torch.zeros(0)
    maps = AttentionMaps([5, 6, END], [7, 8, END], True, none, none, CROSS, guided=guided)
    assert maps.alignment() == aligned  # never the end token, which is the likeliest in the first row


def test_all_alignments_of_a_guided_model_are_those_of_its_head(build: Callable[..., Transformer]) -> None:
    model = build()
    model.guided = True
    attention = source_attention(model, PAIRS)
    for pair, maps, actual in zip(PAIRS, attention_maps(model, PAIRS), attention, strict=True):
        np.testing.assert_allclose(actual, maps.cross[-1, 0, : len(pair[1])], rtol=0, atol=1e-6)
        expected = maps.cross[-1, 0, : len(pair[1]), :-1].argmax(-1).tolist() if pair[0] else []
        assert maps.alignment() == alignment(model, [pair[0]], [pair[1]]) == expected


@pytest.mark.parametrize(("source", "target"), [([], [3, 4]), ([3, 4], []), ([], [])], ids=str)
def test_an_empty_side_gives_no_alignment(
    build: Callable[..., Transformer], source: list[int], target: list[int]
) -> None:
    (maps,) = attention_maps(build(), [(source, target)])
    assert maps.alignment() == []


def test_a_translation_that_fills_all_learned_positions_has_no_row_for_its_end(
    build: Callable[..., Transformer],
) -> None:
    model = build(positions="learned", longest=4)
    filled, shorter = attention_maps(model, [([5, 3], [4, 4, 9, 2]), ([5, 3], [4, 4, 9])])
    assert (filled.target, shorter.target) == ([4, 4, 9, 2], [4, 4, 9, END])
    assert [len(maps.alignment()) for maps in (filled, shorter)] == [4, 3]


def test_the_predicted_token_does_not_affect_its_own_row(build: Callable[..., Transformer]) -> None:
    one, other = attention_maps(build(), [([5, 3], [4, 9, 2]), ([5, 3], [4, 9, 7])])
    for kind in ("decoder", "cross"):
        rows, others = getattr(one, kind), getattr(other, kind)
        torch.testing.assert_close(rows[:, :, :3], others[:, :, :3], rtol=0, atol=1e-12)
        assert (rows[:, :, 3] - others[:, :, 3]).abs().max() > 1e-3


def test_a_decoder_without_self_attention_is_aligned_too(
    build: Callable[..., Transformer],
) -> None:
    maps = attention_maps(build(decoder_history="ssru"), PAIRS)
    for (_, target), actual in zip(PAIRS, maps, strict=True):
        assert actual.decoder.shape == (0, 2, len(target) + 1, len(target) + 1)
        torch.testing.assert_close(actual.cross.sum(-1), torch.ones_like(actual.cross[..., 0]))
        assert len(actual.alignment()) in (0, len(target))


def test_certain_heads_of_the_upper_half_count_most_in_the_attention_to_the_source(
    build: Callable[..., Transformer],
) -> None:
    model = build()
    for pair, maps, actual in zip(
        PAIRS, attention_maps(model, PAIRS), source_attention(model, PAIRS), strict=True
    ):
        heads_HTS = maps.cross[1:].flatten(0, 1).numpy()  # 2 of 3 layers
        entropies_H = -(heads_HTS * np.log(heads_HTS)).sum(-1).mean(-1)
        weights_H = np.exp(-CERTAINTY * entropies_H)
        expected = (weights_H[:, None, None] * heads_HTS).sum(0)[: len(pair[1])] / weights_H.sum()
        np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-5)
        assert actual.shape == (len(pair[1]), len(pair[0]) + 1)
    assert source_attention(model, []) == []


def test_source_attention_beyond_learned_positions_is_zero(build: Callable[..., Transformer]) -> None:
    model = build(positions="learned", longest=4)
    (actual,) = source_attention(model, [([3], [2] * 6)])
    assert actual.shape == (6, 2)
    assert not actual[4:].any() and actual[:4].all()
