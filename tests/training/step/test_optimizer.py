"""Adam against its definition in float64, and its state by name."""

from copy import deepcopy

import pytest
import torch
from torch import Tensor, nn

from nmt_cli.checkpoints.model_folder import Identity
from nmt_cli.model.transformer import Transformer
from nmt_cli.training.config import BETA1, OptimizerConfig
from nmt_cli.training.step.optimizer import Optimizer
from tests.checks import differing
from tests.training.runs import flat

ADAM, ADAMW = OptimizerConfig(), OptimizerConfig(kind="adamw", weight_decay=0.1)
MUON = OptimizerConfig(kind="muon", weight_decay=0.1)


def drawn(model: nn.Module, count: int) -> list[Tensor]:
    """Return random gradients of very different magnitudes."""
    draw = torch.Generator().manual_seed(7)
    size = len(flat(model))
    return [torch.randn(size, generator=draw) * 10.0 ** (i % 5 - 4) for i in range(count)]


def take(optimizer: Optimizer, gradient: Tensor, rate: float, *, bad: bool = False) -> None:
    optimizer.step(gradient, rate, torch.tensor(float(bad)), None)


def adam(x: Tensor, gradients: list[Tensor], rates: list[float], config: OptimizerConfig) -> Tensor:
    """Compute Adam (Kingma and Ba, algorithm 1) or AdamW (Loshchilov and Hutter, algorithm 2)."""
    x, mean, square = x.double(), torch.zeros_like(x).double(), torch.zeros_like(x).double()
    for step, (gradient, rate) in enumerate(zip(gradients, rates, strict=True), start=1):
        g = gradient.double()
        mean = BETA1 * mean + (1 - BETA1) * g
        square = config.beta2 * square + (1 - config.beta2) * g * g
        unbiased = square / (1 - config.beta2**step)
        x = x - rate * config.weight_decay * x
        x = x - rate * mean / (1 - BETA1**step) / (unbiased.sqrt() + config.epsilon)
    return x


@pytest.mark.parametrize(
    "config",
    [ADAM, ADAMW, OptimizerConfig(beta2=0.9, epsilon=1e-3)],
    ids=["the paper's", "adamw", "other numbers"],
)
def test_twenty_steps_are_those_of_adams_definition(model: Transformer, config: OptimizerConfig) -> None:
    start, gradients = flat(model), drawn(model, 20)
    rates = [1e-3 * step for step in range(1, 21)]
    optimizer = Optimizer(model, config)
    for gradient, rate in zip(gradients, rates, strict=True):
        take(optimizer, gradient, rate)
    exact = adam(start, gradients, rates, config)
    assert (exact - start).abs().max() > 0.01
    assert (flat(model) - exact).abs().max() < 1e-5


@pytest.mark.parametrize("config", [ADAM, ADAMW, MUON], ids=["adam", "adamw", "muon"])
@pytest.mark.parametrize("steps_before", [0, 3])
def test_a_step_that_is_left_out_changes_neither_weights_nor_state(
    model: Transformer, config: OptimizerConfig, steps_before: int
) -> None:
    optimizer = Optimizer(model, config)
    *gradients, last = drawn(model, steps_before + 1)
    for gradient in gradients:
        take(optimizer, gradient, 0.01)
    weights, state = flat(model), {k: v.clone() for k, v in optimizer.tensors().items()}
    take(optimizer, torch.full_like(last, torch.nan), 0.01, bad=True)
    assert torch.equal(flat(model), weights)
    assert not differing(optimizer.tensors(), state)
    take(optimizer, last, 0.01)
    assert not torch.equal(flat(model), weights)
    steps = {float(t) for name, t in optimizer.tensors().items() if name.endswith(".step")}
    assert steps == {steps_before + 1.0}


def stored(optimizer: Optimizer) -> dict[str, Tensor]:
    """Return the state as a checkpoint stores it."""
    return {name: tensor.clone() for name, tensor in optimizer.tensors().items()}


@pytest.mark.parametrize("config", [ADAM, MUON], ids=["adam", "muon"])
def test_state_is_stored_by_name_and_restored_bit_by_bit(
    identity: Identity, model: Transformer, config: OptimizerConfig
) -> None:
    optimizer = Optimizer(model, config)
    *first, last = drawn(model, 4)
    for gradient in first:
        take(optimizer, gradient, 0.01)
    state = stored(optimizer)
    names = [name for name, _ in model.named_parameters()]
    if config is ADAM:
        keys = ("exp_avg", "exp_avg_sq", "step")
        assert sorted(state) == sorted(f"{name}.{key}" for name in names for key in keys)
    assert {name: state[f"{name}.exp_avg"].shape for name in names} == {
        name: parameter.shape for name, parameter in model.named_parameters()
    }
    other = identity.build()
    other.load_state_dict(model.state_dict())
    restored = Optimizer(other, config)
    restored.restore(state)
    take(optimizer, last, 0.01)
    take(restored, last, 0.01)
    assert torch.equal(flat(other), flat(model))
    assert not differing(restored.tensors(), optimizer.tensors())
    assert float(state[f"{names[0]}.step"]) == 3.0  # a copy of the live counter


class Odd(nn.Module):
    """Parameters of odd sizes."""

    def __init__(self) -> None:
        super().__init__()
        draw = torch.Generator().manual_seed(3)
        sizes = {"a": (37,), "b": (64, 8), "c": (3,), "d": (5, 33), "e": (16,)}
        for name, size in sizes.items():
            self.register_parameter(name, nn.Parameter(torch.randn(size, generator=draw)))


@pytest.mark.parametrize("config", [ADAM, ADAMW], ids=["adam", "adamw"])
def test_one_vector_gives_the_same_bits_as_separate_parameters(config: OptimizerConfig) -> None:
    model = Odd()
    plain = deepcopy(model)
    kind = torch.optim.AdamW if config.kind == "adamw" else torch.optim.Adam
    theirs = kind(
        plain.parameters(), betas=(0.9, 0.98), eps=1e-9, weight_decay=config.weight_decay, fused=True
    )
    ours = Optimizer(model, config)
    for number in range(1, 20):
        draw = torch.Generator().manual_seed(number)
        gradient = torch.zeros_like(ours.parameters.vector)
        for parameter, view in zip(plain.parameters(), ours.parameters.views(gradient), strict=True):
            view.copy_(torch.randn(view.shape, generator=draw) * 10.0 ** (number % 5 - 4))
            parameter.grad = view.clone()
        theirs.param_groups[0]["lr"] = 1e-3 * number
        theirs.step()
        take(ours, gradient, 1e-3 * number)
    for (name, right), actual in zip(plain.named_parameters(), model.parameters(), strict=True):
        assert torch.equal(actual, right), name
        assert torch.equal(ours.tensors()[f"{name}.exp_avg_sq"], theirs.state[right]["exp_avg_sq"])


def take_all(optimizer: Optimizer, numbers: range) -> None:
    """Take steps with the same gradients for each parameter, at any position in the vector."""
    for number in numbers:
        draw = torch.Generator().manual_seed(number)
        gradient = torch.zeros_like(optimizer.parameters.vector)
        for view in optimizer.parameters.views(gradient):
            view.copy_(torch.randn(view.shape, generator=draw) * 10.0 ** (number % 5 - 4))
        take(optimizer, gradient, 1e-3 * number)


def test_the_state_of_a_frozen_parameter_is_restored_and_a_new_one_starts_from_zero(
    model: Transformer,
) -> None:
    first, later = "decoder.0.feed_forward.inner.bias", "decoder.0.feed_forward.outer.bias"
    names = dict(model.named_parameters())
    names[later].requires_grad_(False)
    optimizer = Optimizer(model, ADAM)
    take_all(optimizer, range(1, 3))
    state = stored(optimizer)
    assert f"{later}.step" not in state
    names[first].requires_grad_(False)
    names[later].requires_grad_(True)
    other = Optimizer(model, ADAM)
    other.restore(state)
    take_all(other, range(3, 4))
    after = stored(other)
    assert torch.equal(after[f"{first}.exp_avg"], state[f"{first}.exp_avg"])
    steps = {name: float(tensor) for name, tensor in after.items() if name.endswith(".step")}
    assert (steps.pop(f"{first}.step"), steps.pop(f"{later}.step")) == (2.0, 1.0)
    assert set(steps.values()) == {3.0}


def test_a_new_optimiser_starts_from_zero(model: Transformer) -> None:
    optimizer = Optimizer(model, ADAM)
    assert not any(tensor.any() for tensor in optimizer.tensors().values())
    optimizer.restore({})
    assert not any(tensor.any() for tensor in optimizer.tensors().values())
