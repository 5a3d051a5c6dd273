"""The whole model: its parts, its independence of batches, and which tokens affect which."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from nmt_cli.errors import UserError
from nmt_cli.model import embedding, layers
from nmt_cli.model.config import ModelConfig
from nmt_cli.model.keyed_dropout import dropout
from nmt_cli.model.transformer import Transformer
from nmt_cli.ragged import Layout
from tests.model.models import vocabulary_of

Batch = tuple[Tensor, Tensor, Layout, Layout]

POST = ModelConfig(encoder_layers=2, decoder_layers=2, width=32, feed_forward=48, heads=4)
CONFIGS = {
    "post": POST,
    "pre": replace(POST, norm="pre", activation="gelu", norm_epsilon=1e-3),
    "learned": replace(POST, positions="learned", longest=600, tie="none"),
    "windows": replace(POST, window=3),
    "widths apart": replace(POST, key_width=6, value_width=10, attention_bias=True, tie="decoder"),
    "ssru": replace(POST, decoder_history="ssru"),
    "depths apart": replace(POST, encoder_layers=3, decoder_layers=1),
    "decoder apart": replace(POST, decoder_heads=2, decoder_feed_forward=80),
    "ssru apart": replace(POST, decoder_history="ssru", decoder_heads=8, decoder_feed_forward=24),
}


def shape_of(config: ModelConfig) -> Transformer:
    with torch.device("meta"):
        return Transformer(config, vocabulary_of(50), vocabulary_of(60), joint=False)


@pytest.mark.parametrize("name", CONFIGS)
@given(pairs=st.lists(st.tuples(st.integers(1, 12), st.integers(1, 12)), min_size=1, max_size=6))
@settings(max_examples=8)
@torch.no_grad()
def test_the_ragged_model_equals_a_padded_one_written_by_hand(
    name: str,
    pairs: list[tuple[int, int]],
    build: Callable[..., Transformer],
    batch: Callable[..., Batch],
    hand_padded: Callable[..., Tensor],
) -> None:
    model = build(CONFIGS[name])
    inputs = batch(*zip(*pairs, strict=True))
    fp32 = model.logits(model(*inputs))
    expected = hand_padded(model, *inputs)
    assert (fp32 - expected).abs().max() < 1e-4
    model.double()
    assert (model.logits(model(*inputs)) - hand_padded(model, *inputs)).abs().max() < 1e-12


@pytest.mark.parametrize("name", CONFIGS)
@given(
    pair=st.tuples(st.integers(1, 20), st.integers(1, 20)),
    other_pairs=st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), max_size=8),
    index=st.integers(0, 8),
)
@settings(max_examples=15)
@torch.no_grad()
def test_the_logits_of_a_pair_do_not_depend_on_the_rest_of_its_batch(
    name: str,
    pair: tuple[int, int],
    other_pairs: list[tuple[int, int]],
    index: int,
    build: Callable[..., Transformer],
    batch: Callable[..., Batch],
) -> None:
    model, index = build(CONFIGS[name]).double(), min(index, len(other_pairs))
    source_S, inputs_T, source, target = batch(
        *zip(*other_pairs[:index], pair, *other_pairs[index:], strict=True)
    )
    its_source, its_inputs = list(source.slices())[index], list(target.slices())[index]
    together = model.logits(model(source_S, inputs_T, source, target))[its_inputs]
    alone = model(source_S[its_source], inputs_T[its_inputs], Layout.of(pair[:1]), Layout.of(pair[1:]))
    assert (together - model.logits(alone)).abs().max() < 1e-12


@torch.no_grad()
def test_a_layout_for_longer_sentences_changes_nothing(
    build: Callable[..., Transformer], batch: Callable[..., Batch]
) -> None:
    for config in (POST, CONFIGS["windows"]):
        model, (source_S, inputs_T, source, target) = build(config).double(), batch([5, 2], [1, 9])
        wider = Layout.of([5, 2], longest=16), Layout.of([1, 9], longest=32)
        expected = model(source_S, inputs_T, source, target)
        assert (model(source_S, inputs_T, *wider) - expected).abs().max() < 1e-12


@pytest.mark.parametrize(
    ("sources", "targets"),
    [([0, 3], [2, 4]), ([2, 3], [0, 4]), ([0], [3]), ([3], [0]), ([], [])],
    ids=["a source", "a target", "the only source", "the only target", "no pairs"],
)
def test_empty_sentences_give_finite_logits_and_gradients(
    sources: list[int], targets: list[int], build: Callable[..., Transformer], batch: Callable[..., Batch]
) -> None:
    model = build(POST)
    logits = model.logits(model(*batch(sources, targets)))
    assert logits.shape == (sum(targets), 40)
    torch.autograd.backward(logits.square().sum())
    assert logits.isfinite().all()
    assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())


@pytest.mark.parametrize("name", CONFIGS)
def test_every_parameter_gets_the_gradient_of_the_padded_model(
    name: str,
    build: Callable[..., Transformer],
    batch: Callable[..., Batch],
    hand_padded: Callable[..., Tensor],
) -> None:
    model, inputs = build(CONFIGS[name]).double(), batch([5, 1, 8], [1, 9, 6])
    weights = dict(model.named_parameters())
    actual = torch.autograd.grad(model.logits(model(*inputs)).sin().sum(), list(weights.values()))
    expected = torch.autograd.grad(hand_padded(model, *inputs).sin().sum(), list(weights.values()))
    for weight, ours, theirs in zip(weights, actual, expected, strict=True):
        assert ours.abs().max() > 0, weight
        assert (ours - theirs).abs().max() <= 1e-11 * theirs.abs().max() + 1e-13, weight


def matrices(tie: str, joint: bool) -> list[nn.Parameter]:
    choices = {"all": POST, "decoder": replace(POST, tie="decoder"), "none": replace(POST, tie="none")}
    model = Transformer(choices[tie], vocabulary_of(50), vocabulary_of(50 if joint else 60), joint=joint)
    return [model.source_embedding.matrix, model.target_embedding.matrix, model.output_matrix]


@pytest.mark.parametrize("joint", [True, False])
@pytest.mark.parametrize(("tie", "different"), [("all", 1), ("decoder", 2), ("none", 3)])
def test_the_setting_tie_decides_which_matrices_are_shared(tie: str, different: int, joint: bool) -> None:
    if tie == "all" and not joint:
        with pytest.raises(UserError, match=r"Set model\.tie=decoder, or preprocess with tokenizer\.joint"):
            matrices(tie, joint)
        return
    source, target, output = matrices(tie, joint)
    assert len({id(source), id(target), id(output)}) == different
    assert (target is output) == (tie != "none")
    assert [len(source), len(target), len(output)] == ([50] * 3 if joint else [50, 60, 60])
    for matrix in (source, target, output):
        six_deviations = 6 / (2 * matrix.numel()) ** 0.5  # of the deviation of so many numbers
        assert float(matrix.detach().std()) == pytest.approx(32**-0.5, rel=six_deviations)


def test_tied_matrices_stay_shared_when_weights_are_loaded(build: Callable[..., Transformer]) -> None:
    one, other = build(POST, seed=1), build(POST, seed=2)
    other.load_state_dict(one.state_dict())
    assert other.output_matrix is other.source_embedding.matrix is other.target_embedding.matrix
    assert torch.equal(other.output_matrix, one.output_matrix)


@pytest.mark.parametrize(("norm", "last"), [("post", nn.Identity), ("pre", nn.LayerNorm)])
def test_only_pre_norm_ends_each_stack_with_a_norm(norm: str, last: type[nn.Module]) -> None:
    model = shape_of(replace(CONFIGS[norm], tie="none"))
    assert type(model.encoder_norm) is type(model.decoder_norm) is last
    norms = [part for part in model.modules() if isinstance(part, nn.LayerNorm)]
    assert len(norms) == 2 * 2 + 3 * 2 + (2 if norm == "pre" else 0)


def test_every_norm_has_the_epsilon_of_the_settings() -> None:
    for config, epsilon in ((POST, 1e-6), (replace(POST, norm_epsilon=1e-3), 1e-3), (CONFIGS["pre"], 1e-3)):
        norms = [
            part for part in shape_of(replace(config, tie="none")).modules() if isinstance(part, nn.LayerNorm)
        ]
        assert {norm.eps for norm in norms} == {epsilon}


Drops = list[tuple[float, tuple[int, ...]]]


@pytest.fixture
def drops(monkeypatch: pytest.MonkeyPatch) -> Drops:
    """Record each dropout as (probability, shape)."""
    seen: Drops = []

    def recorded(x: Tensor, probability: float, training: bool, layout: Layout | None) -> Tensor:
        if training and probability:
            seen.append((probability, tuple(x.shape)))
        return dropout(x, probability, training, layout)

    monkeypatch.setattr(layers, "dropout", recorded)
    monkeypatch.setattr(embedding, "dropout", recorded)
    return seen


@pytest.mark.parametrize("name", ["post", "pre"])
def test_dropout_applies_to_both_embeddings_and_every_sub_layer_and_nothing_else(
    name: str, drops: Drops, build: Callable[..., Transformer], batch: Callable[..., Batch]
) -> None:
    config = replace(CONFIGS[name], residual_dropout=0.3)
    build(config).train()(*batch([5, 2], [4, 7]))
    encoder = [(0.3, (7, 32))] * (1 + 2 * 2)
    assert drops == [*encoder, *[(0.3, (11, 32))] * (1 + 2 * 3)]


def test_activation_dropout_applies_once_in_each_feed_forward_layer(
    drops: Drops, build: Callable[..., Transformer], batch: Callable[..., Batch]
) -> None:
    config = replace(POST, residual_dropout=0.0, activation_dropout=0.4)
    build(config).train()(*batch([5, 2], [4, 7]))
    assert drops == [(0.4, (7, 48))] * 2 + [(0.4, (11, 48))] * 2


@pytest.mark.parametrize(
    ("settings", "same"),
    [
        ({}, True),
        ({"residual_dropout": 0.1}, False),
        ({"attention_dropout": 0.1}, False),
        ({"activation_dropout": 0.1}, False),
    ],
    ids=str,
)
def test_training_differs_from_evaluation_only_by_the_three_kinds_of_dropout(
    settings: dict[str, Any], same: bool, build: Callable[..., Transformer], batch: Callable[..., Batch]
) -> None:
    none = replace(POST, residual_dropout=0.0)
    model, inputs = build(replace(none, **settings)), batch([5, 20], [14, 7])
    evaluated, trained = model(*inputs), model.train()(*inputs)
    assert torch.equal(evaluated, trained) == same


def reach(changed: Tensor, expected: Tensor) -> list[int]:
    """Return the tokens whose vectors changed."""
    return (changed != expected).any(1).nonzero().flatten().tolist()


@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize(
    ("window", "behind", "ahead"), [(1, 0, 0), (2, 0, 1), (3, 1, 1), (6, 2, 3), (0, 99, 99)]
)
@torch.no_grad()
def test_a_changed_source_token_affects_only_the_window_of_each_layer(
    window: int, behind: int, ahead: int, depth: int, build: Callable[..., Transformer]
) -> None:
    """With a window r, a token sees r // 2 tokens before it and (r - 1) // 2 after it in each layer."""
    model = build(replace(POST, encoder_layers=depth, window=window))
    ids, layout = torch.arange(40) % 7, Layout.of([25, 15])
    before = model.encode(ids, layout)
    ids[12] = 30
    last = min(12 + depth * ahead, 24)
    assert reach(model.encode(ids, layout), before) == list(range(max(0, 12 - depth * behind), last + 1))


@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize(("window", "ahead"), [(1, 0), (2, 1), (3, 1), (6, 3), (0, 99)])
@torch.no_grad()
def test_a_changed_target_token_never_affects_earlier_tokens(
    window: int, ahead: int, depth: int, build: Callable[..., Transformer]
) -> None:
    model = build(replace(POST, decoder_layers=depth, window=window))
    source, target, ids = Layout.of([3, 4]), Layout.of([25, 15]), torch.arange(40) % 7
    before = model(ids[:7], ids, source, target)
    ids = ids.clone()
    ids[12] = 30
    after = model(ids[:7], ids, source, target)
    # It first affects the prediction of the next token.
    assert reach(after, before) == list(range(13, min(13 + depth * ahead, 24) + 1))
