"""Parameters and gradients that are views of one vector each."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from nmt_cli.checkpoints.model_folder import Identity
from nmt_cli.model.transformer import Transformer
from nmt_cli.training.step.flat import UNIT, Gradients, Halves, Parameters
from tests.checks import differing


def test_parameters_keep_their_values_and_are_parts_of_the_vector(model: Transformer) -> None:
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    parameters = Parameters(model)
    assert not differing(dict(model.named_parameters()), before)
    assert not len(parameters.vector) % UNIT
    parameters.vector.fill_(2.0)
    assert all(bool((parameter == 2).all()) for parameter in model.parameters())
    assert all(parameter.data_ptr() % 64 == 0 for parameter in model.parameters())


def test_frozen_parameters_are_not_in_the_vector(model: Transformer) -> None:
    model.encoder[0].feed_forward.requires_grad_(False)
    parameters = Parameters(model)
    parameters.vector.fill_(2.0)
    frozen = [parameter for parameter in model.parameters() if not parameter.requires_grad]
    assert len(frozen) == 4 and not any(bool((each == 2).all()) for each in frozen)


def test_the_gradients_are_one_vector_before_and_after_backward(model: Transformer) -> None:
    gradients = Gradients(Parameters(model))
    gradients.flat.fill_(2.0)
    loss = torch.stack([parameter.sum() for parameter in model.parameters()]).sum()
    loss.backward()  # type: ignore[no-untyped-call]  # untyped in torch
    assert torch.equal(gradients.flat, torch.full_like(gradients.flat, 3.0))
    gradients.flat.copy_(torch.arange(len(gradients.flat)))
    views = [parameter.grad.flatten() for parameter in model.parameters() if parameter.grad is not None]
    assert torch.equal(torch.cat(views), torch.arange(len(gradients.flat)).float())


@pytest.mark.parametrize("half", [False, True], ids=["fp32", "bf16"])
def test_the_first_gradients_overwrite_and_later_ones_add(model: Transformer, half: bool) -> None:
    halves = Halves(model, torch.bfloat16) if half else None
    gradients = Gradients(Parameters(model), halves)
    gradients.all.fill_(7.0)
    one = torch.ones(())
    for first in (True, False):
        # The loss does not depend on some parameters.
        with torch.enable_grad():
            used = halves.instead_of([*model.parameters()][:5]) if halves else [*model.parameters()][:5]
            loss = torch.stack([parameter.float().sum() for parameter in used]).sum()
        gradients.add(loss, one, torch.tensor([3.0, 4.0]), first=first)
        most = sum(parameter.numel() for parameter in [*model.parameters()][:5])
        value = 1.0 if first else 2.0
        assert {*gradients.flat.tolist()} == {0.0, value}
        assert gradients.flat.sum() == value * most
    assert gradients.losses.tolist() == [6.0, 8.0]


def test_a_tied_matrix_is_counted_once(identity: Identity, model: Transformer) -> None:
    untied = replace(identity, config=replace(identity.config, tie="none")).build()
    matrix = model.output_matrix
    assert model.source_embedding.matrix is matrix
    assert len(Parameters(model).vector) == len(Parameters(untied).vector) - 2 * matrix.numel()


def test_linear_layers_compute_with_half_precision_copies_within_the_block(
    model: Transformer,
) -> None:
    own = dict(model.named_parameters())
    halves = Halves(model, torch.bfloat16)
    halves.refresh()
    with pytest.raises(ZeroDivisionError), halves.in_place():
        inside = dict(model.named_parameters())
        linear = {
            f"{name}.{key}"
            for name, module in model.named_modules()
            if isinstance(module, nn.Linear)
            for key in ("weight", "bias")
        }
        copies = {name: each for name, each in inside.items() if each.dtype == torch.bfloat16}
        assert not differing(copies, {name: own[name].bfloat16() for name in linear & inside.keys()})
        assert all(inside[name] is own[name] for name in own.keys() - linear)
        raise ZeroDivisionError
    assert all(parameter is own[name] for name, parameter in model.named_parameters())
