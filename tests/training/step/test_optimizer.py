"""Adam against its definition written out in float64, one flat gradient, and state by name."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from nmt_cli.checkpoints.model_folder import Identity
from nmt_cli.model.transformer import Transformer
from nmt_cli.training.config import OptimizerConfig
from nmt_cli.training.step.optimizer import Gradients, build_optimizer, optimizer_tensors, restore_optimizer

ADAM, ADAMW = OptimizerConfig(), OptimizerConfig(kind="adamw", weight_decay=0.1)


@pytest.fixture
def model(identity: Identity) -> Transformer:
    torch.manual_seed(1)
    return identity.build()


def flat(model: nn.Module) -> Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


def drawn(model: nn.Module, count: int) -> list[Tensor]:
    """Gradients at random, of very different sizes."""
    draw = torch.Generator().manual_seed(7)
    size = len(flat(model))
    return [torch.randn(size, generator=draw) * 10.0 ** (i % 5 - 4) for i in range(count)]


def take(optimizer: torch.optim.Adam, gradients: Gradients, gradient: Tensor, rate: float) -> None:
    gradients.flat.copy_(gradient)
    for group in optimizer.param_groups:
        group["lr"] = rate
    optimizer.step()


def adam(x: Tensor, gradients: list[Tensor], rates: list[float], config: OptimizerConfig) -> Tensor:
    """Algorithm 1 of Kingma and Ba; with decay apart, algorithm 2 of Loshchilov and Hutter."""
    x, mean, square = x.double(), torch.zeros_like(x).double(), torch.zeros_like(x).double()
    for step, (gradient, rate) in enumerate(zip(gradients, rates, strict=True), start=1):
        g = gradient.double()
        mean = config.beta1 * mean + (1 - config.beta1) * g
        square = config.beta2 * square + (1 - config.beta2) * g * g
        unbiased = square / (1 - config.beta2**step)
        x = x - rate * config.weight_decay * x
        x = x - rate * mean / (1 - config.beta1**step) / (unbiased.sqrt() + config.epsilon)
    return x


def test_the_gradients_are_one_vector_before_and_after_backward(model: Transformer) -> None:
    gradients = Gradients(model)
    gradients.flat.fill_(2.0)
    loss = torch.stack([parameter.sum() for parameter in model.parameters()]).sum()
    loss.backward()  # type: ignore[no-untyped-call]  # torch leaves it so
    assert torch.equal(gradients.flat, torch.full_like(gradients.flat, 3.0))
    gradients.flat.copy_(torch.arange(len(gradients.flat)))
    views = [parameter.grad.flatten() for parameter in model.parameters() if parameter.grad is not None]
    assert torch.equal(torch.cat(views), torch.arange(len(gradients.flat)).float())


def test_a_tied_matrix_is_counted_once(identity: Identity, model: Transformer) -> None:
    untied = replace(identity, config=replace(identity.config, tie="none")).build()
    matrix = model.output_matrix
    assert model.source_embedding.matrix is matrix
    assert len(Gradients(model).flat) == len(Gradients(untied).flat) - 2 * matrix.numel()


@pytest.mark.parametrize(
    "config",
    [ADAM, ADAMW, OptimizerConfig(beta1=0.8, beta2=0.9, epsilon=1e-3)],
    ids=["the paper's", "adamw", "other numbers"],
)
def test_twenty_steps_are_those_of_adams_definition(model: Transformer, config: OptimizerConfig) -> None:
    start, gradients = flat(model), drawn(model, 20)
    rates = [1e-3 * step for step in range(1, 21)]
    optimizer, into = build_optimizer(model, config), Gradients(model)
    for gradient, rate in zip(gradients, rates, strict=True):
        take(optimizer, into, gradient, rate)
    exact = adam(start, gradients, rates, config)
    assert (exact - start).abs().max() > 0.01
    assert (flat(model) - exact).abs().max() < 2e-6


@pytest.mark.parametrize("config", [ADAM, ADAMW], ids=["adam", "adamw"])
@pytest.mark.parametrize("steps_before", [0, 3])
def test_a_step_that_must_not_be_taken_leaves_weights_and_state_as_they_are(
    model: Transformer, config: OptimizerConfig, steps_before: int
) -> None:
    optimizer, into = build_optimizer(model, config), Gradients(model)
    *gradients, last = drawn(model, steps_before + 1)
    for gradient in gradients:
        take(optimizer, into, gradient, 0.01)
    weights, state = flat(model), {k: v.clone() for k, v in optimizer_tensors(model, optimizer).items()}
    optimizer.found_inf = torch.ones(())  # type: ignore[attr-defined]  # what torch's own scaler sets
    take(optimizer, into, torch.full_like(last, torch.nan), 0.01)
    assert torch.equal(flat(model), weights)
    after = optimizer_tensors(model, optimizer)
    assert all(torch.equal(after[name], tensor) for name, tensor in state.items())
    optimizer.found_inf = torch.zeros(())  # type: ignore[attr-defined]
    take(optimizer, into, last, 0.01)
    assert not torch.equal(flat(model), weights)
    assert {float(t) for name, t in after.items() if name.endswith(".step")} == {steps_before + 1.0}


def test_state_is_known_by_name_and_comes_back_bit_by_bit(identity: Identity, model: Transformer) -> None:
    optimizer, into = build_optimizer(model, ADAM), Gradients(model)
    *first, last = drawn(model, 4)
    for gradient in first:
        take(optimizer, into, gradient, 0.01)
    kept = {name: tensor.clone() for name, tensor in optimizer_tensors(model, optimizer).items()}
    names = [name for name, _ in model.named_parameters()]
    assert sorted(kept) == sorted(f"{n}.{what}" for n in names for what in ("exp_avg", "exp_avg_sq", "step"))
    other = identity.build()
    other.load_state_dict(model.state_dict())
    restored, into_other = build_optimizer(other, ADAM), Gradients(other)
    restore_optimizer(other, restored, kept)
    take(optimizer, into, last, 0.01)
    take(restored, into_other, last, 0.01)
    assert torch.equal(flat(other), flat(model))
    after, original = optimizer_tensors(other, restored), optimizer_tensors(model, optimizer)
    assert after.keys() == original.keys()
    assert all(torch.equal(after[name], original[name]) for name in original)
    assert float(kept[f"{names[0]}.step"]) == 3.0  # a copy: what was read is not what goes on


def test_a_new_optimiser_has_nothing_to_keep(model: Transformer) -> None:
    optimizer = build_optimizer(model, ADAM)
    assert optimizer_tensors(model, optimizer) == {}
    restore_optimizer(model, optimizer, {})
    assert not optimizer.state
