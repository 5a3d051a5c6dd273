"""Adam over one flat gradient, and its state by name, as checkpoints keep it."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from nmt_cli.machine.memory import has_own_memory
from nmt_cli.machine.torch_private import add_all
from nmt_cli.training.config import OptimizerConfig

LOSSES = 2
"""Smoothed loss and NLL, summed over the tokens."""

STATE = ("exp_avg", "exp_avg_sq", "step")


class Gradients:
    """The gradients of a model as one vector, of which every parameter's gradient is a view, and the losses.

    So clearing them, summing them over ranks, their norm and scaling them is one operation each.
    """

    def __init__(self, model: nn.Module) -> None:
        self._parameters = trained(model)
        sizes = [parameter.numel() for parameter in self._parameters]
        self.all = torch.zeros(sum(sizes) + LOSSES, device=self._parameters[0].device)
        """What ranks sum up: `flat`, and behind it `losses`."""
        self.flat, self.losses = torch.split(self.all, [sum(sizes), LOSSES])
        self._parts = [
            part.view_as(parameter)
            for parameter, part in zip(self._parameters, torch.split(self.flat, sizes), strict=True)
        ]
        for parameter, part in zip(self._parameters, self._parts, strict=True):
            # Autograd adds in place to a gradient that is there, so it stays part of the vector.
            parameter.grad = part

    def add(self, loss: Tensor, factor: Tensor) -> None:
        """Add the gradients of `loss` times `factor`."""
        if not has_own_memory(self.all.device):
            loss.backward(factor)  # type: ignore[no-untyped-call]  # torch leaves it so
            return
        # Autograd would launch a kernel for each parameter, to add what is all there at the same time anyway:
        # code that was compiled gives the gradients of a whole model at once.
        found = torch.autograd.grad(loss, self._parameters, factor, allow_unused=True)
        used = [(part, new) for part, new in zip(self._parts, found, strict=True) if new is not None]
        add_all([part for part, _ in used], [new for _, new in used])


def trained(model: nn.Module) -> list[nn.Parameter]:
    """The parameters that are not frozen."""
    return [parameter for parameter in model.parameters() if parameter.requires_grad]


def build_optimizer(model: nn.Module, config: OptimizerConfig) -> torch.optim.Adam:
    """Adam or AdamW, fused: the device itself can leave out a step, see `step_unless`."""
    kind = torch.optim.Adam if config.kind == "adam" else torch.optim.AdamW
    return kind(
        model.parameters(),
        lr=0.0,  # each step sets its own
        betas=(config.beta1, config.beta2),
        eps=config.epsilon,
        weight_decay=config.weight_decay,
        fused=True,
    )


def optimizer_tensors(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The optimiser's state of each parameter, by the parameter's name and what it is."""
    return {
        f"{name}.{what}": optimizer.state[parameter][what]
        for name, parameter in model.named_parameters()
        if parameter in optimizer.state
        for what in STATE
    }


def restore_optimizer(
    model: nn.Module, optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor]
) -> None:
    """Put back what `optimizer_tensors` gave."""
    for name, parameter in model.named_parameters():
        if f"{name}.{STATE[0]}" in tensors:
            optimizer.state[parameter] = {
                what: tensors[f"{name}.{what}"].to(parameter.device, copy=True) for what in STATE
            }
