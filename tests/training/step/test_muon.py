"""Muon against `torch.optim.Muon`, its orthogonalisation against an SVD, and which parameters it updates."""

from collections.abc import Callable
from copy import deepcopy

import pytest
import torch
from torch import Tensor, nn

from nmt_cli.model.transformer import Transformer
from nmt_cli.training.config import OptimizerConfig
from nmt_cli.training.step import muon
from nmt_cli.training.step.muon import orthogonalized
from nmt_cli.training.step.optimizer import Optimizer

MUON = OptimizerConfig(kind="muon")
DECAYING = OptimizerConfig(kind="muon", weight_decay=0.1)


def gradients_of(model: nn.Module, number: int) -> dict[str, Tensor]:
    """Return random gradients by name, of a magnitude that depends on `number`."""
    draw = torch.Generator().manual_seed(number)
    return {
        name: torch.randn(parameter.shape, generator=draw) * 10.0 ** (number % 5 - 4)
        for name, parameter in model.named_parameters()
    }


def take(optimizer: Optimizer, gradients: dict[str, Tensor], rate: float, scale: float | None = None) -> None:
    vector = torch.zeros_like(optimizer.parameters.vector)
    for name, view in optimizer.parameters.named_views(vector).items():
        view.copy_(gradients[name] * (scale or 1.0))
    optimizer.step(vector, rate, torch.zeros(()), None if scale is None else torch.tensor(scale))


def is_matrix(name: str, parameter: nn.Parameter) -> bool:
    """Return whether this is a weight of a layer."""
    return parameter.ndim == 2 and name.startswith(("encoder.", "decoder."))


@pytest.fixture
def _fp32(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let both implementations of Muon compute in fp32, as ours does on a CPU without bf16."""
    monkeypatch.setattr(Tensor, "bfloat16", Tensor.clone)
    monkeypatch.setattr(muon, "translating_precisions", lambda _: ["fp32"])


@pytest.mark.usefixtures("_fp32")
@pytest.mark.parametrize("config", [MUON, DECAYING], ids=["plain", "decayed"])
def test_twenty_steps_are_those_of_torch_for_matrices_and_adamw_for_the_rest(
    model: Transformer, config: OptimizerConfig
) -> None:
    theirs, start = deepcopy(model), deepcopy(model)
    named = dict(theirs.named_parameters())
    matrices = [parameter for name, parameter in named.items() if is_matrix(name, parameter)]
    rest = [parameter for name, parameter in named.items() if not is_matrix(name, parameter)]
    decay = config.weight_decay
    for_matrices = torch.optim.Muon(matrices, weight_decay=decay, adjust_lr_fn="match_rms_adamw")
    for_rest = torch.optim.AdamW(rest, betas=(0.9, 0.98), eps=1e-9, weight_decay=decay)
    optimizer = Optimizer(model, config)
    for number in range(1, 21):
        gradients, rate = gradients_of(theirs, number), 1e-3 * number
        for name, parameter in named.items():
            parameter.grad = gradients[name].clone()
        for one in (for_matrices, for_rest):
            one.param_groups[0]["lr"] = rate
            one.step()  # type: ignore[no-untyped-call]  # untyped in torch
        take(optimizer, gradients, rate)
    before = dict(start.named_parameters())
    for name, parameter in model.named_parameters():
        assert (parameter - before[name]).abs().max() > 0.01, name
        torch.testing.assert_close(parameter, named[name], rtol=0, atol=1e-6)


@pytest.mark.parametrize("shape", [(16, 16), (48, 16), (32, 64)], ids=str)
def test_orthogonalised_matrices_are_those_of_torch_to_rounding_of_bf16(shape: tuple[int, int]) -> None:
    matrices = torch.randn(3, *shape, generator=torch.Generator().manual_seed(4))
    for ours, matrix in zip(orthogonalized(matrices).float(), matrices, strict=True):
        parameter = nn.Parameter(torch.zeros(shape))
        parameter.grad = matrix
        torch.optim.Muon([parameter], lr=1.0, weight_decay=0.0).step()  # type: ignore[no-untyped-call]
        expected = -parameter.detach() / max(1.0, shape[0] / shape[1]) ** 0.5
        # Two orders of bf16 products differ by 0.03, and one iteration too few by 0.34.
        assert (ours - expected).norm() < 0.1 * expected.norm()


@pytest.mark.parametrize("shape", [(16, 16), (16, 48), (48, 16), (1, 8)], ids=str)
def test_orthogonalising_keeps_singular_vectors_and_brings_singular_values_close_to_1(
    shape: tuple[int, int],
) -> None:
    matrices = torch.randn(3, *shape, generator=torch.Generator().manual_seed(4)) * 1e-3
    u, _, v = torch.linalg.svd(matrices, full_matrices=False)
    values = u.mT @ orthogonalized(matrices).float() @ v.mT
    diagonal = values.diagonal(dim1=1, dim2=2)
    assert diagonal.min() > 0.6 and diagonal.max() < 1.3
    assert (values - diagonal.diag_embed()).abs().max() < 0.05


def test_a_matrix_of_zeros_stays_as_it_is() -> None:
    assert not orthogonalized(torch.zeros(2, 4, 8)).any()


def test_a_step_has_the_size_of_adams_for_any_shape(model: Transformer) -> None:
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    take(Optimizer(model, MUON), gradients_of(model, 1), 0.01)
    for name, parameter in model.named_parameters():
        if is_matrix(name, parameter):
            assert 0.7 < (parameter - before[name]).square().mean().sqrt() / (0.2 * 0.01) < 1.2, name


def test_embeddings_norms_and_biases_have_the_state_of_adam(model: Transformer) -> None:
    state = Optimizer(model, MUON).tensors().keys()
    for name, parameter in model.named_parameters():
        keys = ("exp_avg",) if is_matrix(name, parameter) else ("exp_avg", "exp_avg_sq", "step")
        assert {key for key in state if key.startswith(f"{name}.")} == {f"{name}.{key}" for key in keys}
    assert {"output_matrix.step", "encoder.0.feed_forward.inner.bias.step"} <= state


def test_the_loss_scale_changes_nothing(new_model: Callable[[], Transformer]) -> None:
    models = new_model(), new_model()
    for model, scale in zip(models, (None, 1024.0), strict=True):
        optimizer = Optimizer(model, MUON)
        for number in (1, 2):
            take(optimizer, gradients_of(model, number), 0.01, scale)
    first, second = (dict(model.named_parameters()) for model in models)
    assert all(torch.equal(first[name], second[name]) for name in first)


@pytest.mark.parametrize("frozen", ["matrices", "rest"])
def test_all_parameters_of_one_kind_may_be_frozen(model: Transformer, frozen: str) -> None:
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(is_matrix(name, parameter) != (frozen == "matrices"))
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    take(Optimizer(model, MUON), gradients_of(model, 1), 0.01)
    for name, parameter in model.named_parameters():
        assert torch.equal(parameter, before[name]) != parameter.requires_grad, name


def test_the_state_of_adam_is_of_use_where_it_is_complete(model: Transformer) -> None:
    optimizer = Optimizer(model, OptimizerConfig())
    take(optimizer, gradients_of(model, 1), 0.01)
    adam = {key: tensor.clone() for key, tensor in optimizer.tensors().items()}
    optimizer = Optimizer(model, MUON)
    optimizer.restore(adam)
    muon_state = {key: tensor.clone() for key, tensor in optimizer.tensors().items()}
    assert all(torch.equal(tensor, adam[key]) for key, tensor in muon_state.items())
    optimizer = Optimizer(model, OptimizerConfig())
    optimizer.restore(muon_state)
    for key, tensor in optimizer.tensors().items():
        name, _, _ = key.rpartition(".")
        # Momentum without its square would make the next steps of Adam too large.
        expected = torch.zeros_like(tensor) if is_matrix(name, model.get_parameter(name)) else adam[key]
        assert torch.equal(tensor, expected), key
