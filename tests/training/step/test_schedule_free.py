"""Schedule-free AdamW against its definition in float64, and the weights that a run translates with."""

from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from nmt_cli.checkpoints.model_folder import Identity, load_weights, weights
from nmt_cli.data.dataset import Dataset
from nmt_cli.model.transformer import Transformer
from nmt_cli.training.config import OptimizerConfig
from nmt_cli.training.setup.build import build_trainer
from nmt_cli.training.step.distributed import Group, Process
from nmt_cli.training.step.schedule_free import ScheduleFree
from nmt_cli.training.step.trainer import MixedPrecision
from nmt_cli.training.tracking.events import Validated
from tests.checks import differing
from tests.training.runs import Complaint, Go, Tiny, flat, lines_of, tensors_of
from tests.training.step.test_ema import judged

PLAIN = OptimizerConfig(kind="schedule-free")
DECAYING = OptimizerConfig(kind="schedule-free", weight_decay=0.1, beta1=0.8, beta2=0.99, epsilon=1e-3)
FREE = ("optimizer.kind=schedule-free", "schedule.kind=constant", "schedule.peak=0.01", "schedule.warmup=3")


def gradient_of(model: nn.Module, number: int) -> Tensor:
    """Return a random gradient of a magnitude that depends on `number`."""
    draw = torch.Generator().manual_seed(number)
    return torch.randn(len(flat(model)), generator=draw) * 10.0 ** (number % 5 - 4)


def take(optimizer: ScheduleFree, gradient: Tensor, rate: float = 0.01, *, bad: bool = False) -> None:
    optimizer.step(gradient, rate, torch.tensor(float(bad)), None)


def vector_of(optimizer: ScheduleFree) -> Tensor:
    """Return a copy of the average in one vector."""
    return torch.cat([tensor.flatten() for tensor in optimizer.average().values()])


@pytest.mark.parametrize("config", [PLAIN, DECAYING], ids=["plain", "other numbers"])
def test_fifty_steps_are_those_of_the_definition(model: Transformer, config: OptimizerConfig) -> None:
    start = flat(model)
    rates = [0.01 * min(1.0, step / 10) for step in range(1, 51)]
    optimizer = ScheduleFree(model, config)
    x = y = z = start.double()
    square = torch.zeros_like(x)
    for step, rate in enumerate(rates, start=1):
        gradient = gradient_of(model, step)
        take(optimizer, gradient, rate)
        g = gradient.double()
        square = config.beta2 * square + (1 - config.beta2) * g * g
        root = (square / (1 - config.beta2**step)).sqrt()
        z = z - rate * (g / (root + config.epsilon) + config.weight_decay * y)
        c = rate**2 / sum(each**2 for each in rates[:step])
        x = (1 - c) * x + c * z
        y = (1 - config.beta1) * z + config.beta1 * x
    assert (x - start).abs().max() > 0.01 and (y - x).abs().max() > 0.001
    assert (vector_of(optimizer) - x).abs().max() < 1e-6
    assert (flat(model) - y).abs().max() < 1e-6


@pytest.mark.parametrize("steps_before", [0, 3])
def test_a_step_that_is_left_out_changes_neither_weights_nor_state(
    model: Transformer, steps_before: int
) -> None:
    optimizer = ScheduleFree(model, DECAYING)
    for number in range(steps_before):
        take(optimizer, gradient_of(model, number))
    before, x = flat(model), vector_of(optimizer)
    state = {key: tensor.clone() for key, tensor in optimizer.tensors().items()}
    take(optimizer, torch.full_like(before, torch.nan), bad=True)
    assert torch.equal(flat(model), before) and torch.equal(vector_of(optimizer), x)
    assert not differing(optimizer.tensors(), state)
    take(optimizer, gradient_of(model, 9))
    assert flat(model).isfinite().all() and not torch.equal(flat(model), before)


def test_the_loss_scale_changes_nothing(new_model: Callable[[], Transformer]) -> None:
    models = new_model(), new_model()
    for model, scale in zip(models, (1.0, 1024.0), strict=True):
        optimizer = ScheduleFree(model, PLAIN)
        for number in (1, 2):
            scaled = gradient_of(model, number) * scale
            optimizer.step(scaled, 0.01, torch.zeros(()), None if scale == 1 else torch.tensor(scale))
    assert torch.equal(flat(models[0]), flat(models[1]))


def test_the_average_is_in_place_within_a_block_even_after_an_error(model: Transformer) -> None:
    optimizer = ScheduleFree(model, PLAIN)
    for number in (1, 2, 3):
        take(optimizer, gradient_of(model, number))
    own, x = flat(model), vector_of(optimizer)
    assert not torch.equal(own, x)
    with pytest.raises(ZeroDivisionError), optimizer.average_in_place():
        assert torch.equal(flat(model), x)
        1 / 0  # noqa: B018
    assert torch.equal(flat(model), own) and torch.equal(vector_of(optimizer), x)


def test_the_state_is_restored_bit_by_bit_from_the_average(
    new_model: Callable[[], Transformer], model: Transformer
) -> None:
    optimizer = ScheduleFree(model, PLAIN)
    for number in (1, 2, 3):
        take(optimizer, gradient_of(model, number))
    state = {key: tensor.clone() for key, tensor in optimizer.tensors().items()}
    other = new_model()
    load_weights(other, optimizer.average(), None)  # type: ignore[arg-type]  # a path for errors only
    restored = ScheduleFree(other, PLAIN)
    restored.restore(state)
    assert torch.equal(flat(other), flat(model))
    for one in (optimizer, restored):
        take(one, gradient_of(model, 4))
    assert torch.equal(flat(other), flat(model)) and torch.equal(vector_of(restored), vector_of(optimizer))
    assert not differing(restored.tensors(), optimizer.tensors())


def test_a_parameter_without_state_starts_from_its_weights(model: Transformer) -> None:
    later = "decoder.0.feed_forward.outer.bias"
    parameter = model.get_parameter(later).requires_grad_(False)
    optimizer = ScheduleFree(model, PLAIN)
    take(optimizer, torch.ones_like(optimizer.parameters.vector))
    state, averages = optimizer.tensors(), optimizer.average()
    load_weights(model, weights(model) | averages, None)  # type: ignore[arg-type]  # a path for errors only
    parameter.requires_grad_(True)
    restored = ScheduleFree(model, PLAIN)
    restored.restore(state)
    assert torch.equal(restored.average()[later], parameter)
    take(restored, torch.ones_like(restored.parameters.vector))
    counts = {key: float(counter) for key, counter in restored.tensors().items() if key.endswith(".step")}
    assert (counts.pop(f"{later}.step"), {*counts.values()}) == (1.0, {2.0})
    torch.testing.assert_close(restored.average()[later], torch.full_like(parameter, -0.01))


def test_all_ranks_start_from_the_weights_of_the_first(
    identity: Identity, tiny: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    def share_first(tensors: Iterable[Tensor]) -> None:
        for tensor in tensors:
            tensor.data.fill_(2.0)

    group = Group(Process(), torch.device("cpu"), 1.0)
    monkeypatch.setattr(group, "share_first", share_first)
    optimizer = build_trainer(
        identity, tiny(*FREE), MixedPrecision("fp32", group.device), group, lambda event: None, fresh=True
    ).optimizer
    z = [tensor for key, tensor in optimizer.tensors().items() if key.endswith(".z")]
    assert all(bool((tensor == 2).all()) for tensor in (*optimizer.average().values(), *z))


@pytest.mark.slow
def test_a_checkpoint_has_the_average_that_was_validated(
    go: Go, dataset: Dataset, identity: Identity, run: Path
) -> None:
    _, events = go(*FREE, "training.max_steps=6", "validation.every_steps=3")
    assert [line["decoded"] for line in lines_of(run) if "valid" in line] == ["weights"] * 2
    *_, event = (event for event in events if isinstance(event, Validated))
    # Products round differently at other addresses in memory.
    assert event.judgements[0].nll == pytest.approx(judged(dataset, identity, tensors_of(run)), rel=1e-6)
    assert not (run / "last/ema.safetensors").exists()
    x, state = tensors_of(run), tensors_of(run, "optimizer")
    assert {key.rsplit(".", 1)[1] for key in state} == {"z", "exp_avg_sq", "step", "weight_sum"}
    assert all(not torch.equal(x[name], state[f"{name}.z"]) for name in x)


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        (
            FREE[:1],
            "optimizer.kind=schedule-free needs a constant learning rate, but schedule.kind is noam. "
            "Set schedule.kind=constant.",
        ),
        (
            (*FREE, "optimizer.ema=0.9"),
            "optimizer.ema has no effect with schedule-free, which has its own average. Leave it out",
        ),
    ],
    ids=["schedule", "ema"],
)
def test_settings_that_do_not_fit_are_refused(
    complaint: Complaint, settings: tuple[str, ...], problem: str
) -> None:
    assert problem in complaint(*settings)
