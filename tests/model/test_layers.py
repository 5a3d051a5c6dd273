"""The sub-layers: initial weights, formulas of the paper in float64, and dropout."""

import math
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Literal

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F

from nmt_cli.config import section_of
from nmt_cli.model.config import ModelConfig
from nmt_cli.model.keyed_dropout import dropout
from nmt_cli.model.layers import CrossAttention, FeedForward, Residual, SelfAttention, scanned
from nmt_cli.ragged import Layout
from tests.model.models import model_of

CONFIG = ModelConfig(width=24, feed_forward=40, heads=3, key_width=4, value_width=6, residual_dropout=0.0)
LENGTHS = [5, 1, 7]
LAYOUT = Layout.of(LENGTHS)


def filled(module: nn.Module) -> nn.Module:
    """Return `module` in float64, with random weights, gains and biases."""
    torch.manual_seed(3)
    for parameter in module.parameters():
        nn.init.normal_(parameter, std=0.3)
    return module.double()


def tokens(seed: int = 0, count: int = sum(LENGTHS)) -> Tensor:
    return torch.randn(count, 24, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def normalised(x: Tensor, norm: nn.LayerNorm, epsilon: float) -> Tensor:
    centred = x - x.mean(-1, keepdim=True)
    return centred / (centred.square().mean(-1, keepdim=True) + epsilon).sqrt() * norm.weight + norm.bias


UNIFORM = 3**0.5
"""The bound of a uniform distribution, in standard deviations."""


def bounds(config: ModelConfig) -> list[tuple[Tensor, float]]:
    """Return each matrix and each bias of the feed-forward layer with its bound, as documented under `init`.

    Projections of one input are separate matrices.
    """
    heads, width, inner = config.heads, config.width, config.feed_forward
    outputs = {"q": heads * config.d_k, "k": heads * config.d_k, "v": heads * config.d_v}
    own, cross = SelfAttention(config, causal=True), CrossAttention(config)
    feed_forward = FeedForward(config)
    drawn = [
        *zip("qkv", torch.split(own.query_key_value.weight, list(outputs.values())), strict=True),
        *zip("kv", torch.split(cross.key_value.weight, [outputs["k"], outputs["v"]]), strict=True),
        ("q", cross.query.weight),
    ]
    smaller = config.init == "smaller"
    shrunk = [(x, math.sqrt((3 if smaller else 6) / (width + outputs[name]))) for name, x in drawn]
    out = [(x.output.weight, math.sqrt(6 / (width + outputs["v"]))) for x in (own, cross)]
    xavier = math.sqrt(6 / (width + inner))
    inside = [
        (feed_forward.inner.weight, width**-0.5 if smaller else xavier),
        (feed_forward.outer.weight, inner**-0.5 if smaller else xavier),
        (feed_forward.inner.bias, width**-0.5 if smaller else 0.0),
        (feed_forward.outer.bias, inner**-0.5 if smaller else 0.0),
    ]
    return [*shrunk, *out, *inside]


@pytest.mark.parametrize("init", ["xavier", "smaller"])
@pytest.mark.parametrize(
    ("width", "inner", "heads", "key", "value"),
    [(64, 256, 2, 0, 0), (256, 512, 4, 32, 96), (512, 64, 8, 0, 0)],
)
def test_each_matrix_is_initialised_as_the_setting_describes(
    init: Literal["xavier", "smaller"], width: int, inner: int, heads: int, key: int, value: int
) -> None:
    torch.manual_seed(0)
    config = ModelConfig(
        init=init, width=width, feed_forward=inner, heads=heads, key_width=key, value_width=value
    )
    for drawn, bound in bounds(config):
        expected, few = bound / UNIFORM, 3 / drawn.numel() ** 0.5  # tolerance for a small sample
        assert float(drawn.detach().square().mean().sqrt()) == pytest.approx(expected, rel=0.01 + few)
        assert float(drawn.detach().abs().max()) <= bound


@pytest.mark.parametrize("history", ["attention", "ssru"])
def test_depth_scaled_weights_are_smaller_ones_with_outputs_divided_by_the_root_of_the_sub_layers(
    history: Literal["attention", "ssru"],
) -> None:
    config = replace(CONFIG, init="smaller", decoder_history=history, encoder_layers=3, decoder_layers=2)
    shares = {f"encoder.{layer}": math.sqrt(1 / 6) for layer in range(3)}  # 2 sub-layers in each
    shares |= {f"decoder.{layer}": math.sqrt(1 / 6) for layer in range(2)}  # 3 sub-layers in each
    last = ("attention.output", "attention.value", "cross.output", "feed_forward.outer")
    torch.manual_seed(5)
    plain = model_of(config, 20).state_dict()
    torch.manual_seed(5)
    scaled = model_of(replace(config, init="depth-scaled"), 20).state_dict()
    changed = {name for name, value in plain.items() if not torch.equal(value, scaled[name])}
    assert {name.rpartition(".")[0] for name in changed} == {
        f"{layer}.{part}" for layer in shares for part in last if f"{layer}.{part}.weight" in plain
    }
    for name in changed:
        torch.testing.assert_close(scaled[name], plain[name] * shares[".".join(name.split(".")[:2])])


@pytest.mark.parametrize(("init", "least", "most"), [("smaller", 10, 40), ("depth-scaled", 0.8, 1.2)])
def test_only_depth_scaled_weights_keep_the_sum_of_all_sub_layers_outputs_at_any_depth(
    init: Literal["smaller", "depth-scaled"], least: float, most: float
) -> None:
    added = []
    for depth in (4, 32):
        torch.manual_seed(0)
        config = ModelConfig(encoder_layers=depth, width=64, feed_forward=128, heads=4, norm="pre", init=init)
        x, layout = torch.randn(40, 64), Layout.of([40])
        after = x
        for layer in model_of(config, 20).encoder.eval():
            after = layer(after, layout)
        added.append(float((after - x).detach().square().mean()))
    assert least < added[1] / added[0] < most


def test_the_default_initialisation_draws_the_same_numbers_as_the_first_version() -> None:
    torch.manual_seed(4)
    drawn = SelfAttention(CONFIG, causal=True), CrossAttention(CONFIG), FeedForward(CONFIG)
    torch.manual_seed(4)
    for part in (part for layer in drawn for part in layer.children()):
        assert isinstance(part, nn.Linear)
        linear = nn.Linear(part.in_features, part.out_features, bias=part.bias is not None)
        widths = {42: [12, 12, 18], 30: [12, 18]}.get(part.out_features, [part.out_features])
        for rows in torch.split(linear.weight.detach(), widths):
            nn.init.xavier_uniform_(rows)
        assert torch.equal(part.weight, linear.weight)


@pytest.mark.parametrize("bias", [False, True])
def test_attention_has_biases_only_with_the_setting_and_they_begin_at_zero(bias: bool) -> None:
    config = replace(CONFIG, attention_bias=bias)
    layers = [SelfAttention(config, causal=True), CrossAttention(config)]
    linears = [part for layer in layers for part in layer.children() if isinstance(part, nn.Linear)]
    assert len(linears) == 5
    for linear in linears:
        assert (linear.bias is not None) == bias
        assert not bias or not linear.bias.any()


@pytest.mark.parametrize("activation", ["relu", "gelu", "swish"])
def test_a_feed_forward_layer_is_the_papers_formula(activation: str) -> None:
    layer = filled(FeedForward(section_of(ModelConfig, {**asdict(CONFIG), "activation": activation})))
    assert isinstance(layer, FeedForward)
    x = tokens()
    inner = x @ layer.inner.weight.T + layer.inner.bias
    activations = {
        "relu": inner.clamp(min=0),
        "gelu": inner * (1 + torch.erf(inner / math.sqrt(2))) / 2,
        "swish": inner / (1 + (-inner).exp()),
    }
    activated = activations[activation]
    assert (layer(x) - (activated @ layer.outer.weight.T + layer.outer.bias)).abs().max() < 1e-12


@pytest.mark.parametrize("epsilon", [1e-6, 0.5])
def test_post_norm_normalises_the_sum_and_pre_norm_the_input_of_the_sub_layer(epsilon: float) -> None:
    post = filled(Residual(replace(CONFIG, norm_epsilon=epsilon)))
    pre = filled(Residual(replace(CONFIG, norm="pre", norm_epsilon=epsilon)))
    assert isinstance(post, Residual) and isinstance(pre, Residual)
    assert isinstance(post.norm, nn.LayerNorm) and isinstance(pre.norm, nn.LayerNorm)
    x = tokens()
    assert (post(x, torch.sin) - normalised(x + x.sin(), post.norm, epsilon)).abs().max() < 1e-12
    assert (pre(x, torch.sin) - (x + normalised(x, pre.norm, epsilon).sin())).abs().max() < 1e-12


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_residual_dropout_applies_to_the_output_of_the_sub_layer_only(norm: str) -> None:
    config = replace(CONFIG, residual_dropout=0.4)
    residual = filled(Residual(replace(config, norm="pre") if norm == "pre" else config))
    assert isinstance(residual, Residual)
    x = tokens()
    torch.manual_seed(9)
    actual = residual(x, torch.sin, LAYOUT)
    torch.manual_seed(9)
    if norm == "post":
        expected = residual.norm(x + dropout(x.sin(), 0.4, True, LAYOUT))
    else:
        expected = x + dropout(residual.norm(x).sin(), 0.4, True, LAYOUT)
    assert torch.equal(actual, expected)
    assert not torch.allclose(actual, residual.eval()(x, torch.sin))


def run(module: nn.Module, x: Tensor) -> Tensor:
    if isinstance(module, SelfAttention):
        out: Tensor = module(x, LAYOUT)
    elif isinstance(module, CrossAttention):
        out = module(x, x, LAYOUT, LAYOUT)
    else:
        out = module(x, LAYOUT)
    return out


SUBLAYERS: list[Callable[[ModelConfig], nn.Module]] = [
    lambda config: SelfAttention(config, causal=True),
    CrossAttention,
    FeedForward,
]


@pytest.mark.parametrize("make", SUBLAYERS, ids=["self", "cross", "feed-forward"])
def test_the_papers_sub_layers_have_no_dropout_inside(make: Callable[[ModelConfig], nn.Module]) -> None:
    config = replace(CONFIG, residual_dropout=0.5)
    module, x = filled(make(config)), tokens()
    assert torch.equal(run(module.train(), x), run(module.eval(), x))


@pytest.mark.parametrize("make", SUBLAYERS, ids=["self", "cross", "feed-forward"])
def test_dropout_inside_a_sub_layer_differs_in_each_call_and_depends_on_the_seed(
    make: Callable[[ModelConfig], nn.Module],
) -> None:
    module = filled(make(replace(CONFIG, attention_dropout=0.5, activation_dropout=0.5)))
    x = tokens()
    torch.manual_seed(4)
    first, second = run(module, x), run(module, x)
    torch.manual_seed(4)
    assert torch.equal(run(module, x), first)
    assert not torch.allclose(first, second)
    assert torch.equal(run(module.eval(), x), run(module.eval(), x))


def test_activation_dropout_applies_after_the_activation() -> None:
    layer, x = filled(FeedForward(replace(CONFIG, activation="gelu", activation_dropout=0.4))), tokens()
    assert isinstance(layer, FeedForward)
    torch.manual_seed(2)
    actual = layer(x, LAYOUT)
    torch.manual_seed(2)
    assert torch.equal(actual, layer.outer(dropout(F.gelu(layer.inner(x)), 0.4, True, LAYOUT)))


@pytest.mark.slow
def test_attention_dropout_keeps_the_mean_of_the_output() -> None:
    module, x = filled(SelfAttention(replace(CONFIG, attention_dropout=0.3), causal=False)), tokens()
    torch.manual_seed(0)
    with torch.no_grad():
        draws = torch.stack([run(module.train(), x) for _ in range(600)])
        error = (draws.mean(0) - run(module.eval(), x)) / (draws.std(0) / math.sqrt(600) + 1e-9)
    assert float(error.abs().max()) < 5


@given(lengths=st.lists(st.integers(1, 40), min_size=1, max_size=5), rounded_up=st.integers(0, 9))
@settings(max_examples=30)
def test_the_parallel_scan_equals_a_loop_over_the_tokens(lengths: list[int], rounded_up: int) -> None:
    torch.manual_seed(sum(lengths))
    layout = Layout.of(lengths, max(lengths) + rounded_up)
    gate, new = torch.rand(sum(lengths), 3, dtype=torch.float64), torch.randn(sum(lengths), 3).double()
    gate, new = gate.requires_grad_(), new.requires_grad_()
    begins = (layout.positions == 0)[:, None]
    actual = scanned(gate.masked_fill(begins, 0.0), new, layout.longest)
    expected, state = [], torch.zeros(3, dtype=torch.float64)
    for share, more, first in zip(gate, new, begins, strict=True):
        state = more if first else share * state + more
        expected.append(state)
    assert (actual - torch.stack(expected)).abs().max() < 1e-12
    gradients = [
        torch.autograd.grad(x.square().sum(), (gate, new), allow_unused=True, materialize_grads=True)
        for x in (actual, torch.stack(expected))
    ]
    for one, other in zip(*gradients, strict=True):
        assert (one - other).abs().max() < 1e-9
