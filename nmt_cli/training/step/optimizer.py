"""Adam over one flat gradient, and its state by name, as checkpoints keep it."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from nmt_cli.training.config import OptimizerConfig

STATE = ("exp_avg", "exp_avg_sq", "step")


class Gradients:
    """The gradients of a model as one vector, of which every parameter's gradient is a view.

    So clearing them, summing them over ranks, their norm and scaling them is one operation each.
    """

    def __init__(self, model: nn.Module) -> None:
        parameters = trained(model)
        self.flat = torch.zeros(sum(p.numel() for p in parameters), device=parameters[0].device)
        parts = torch.split(self.flat, [p.numel() for p in parameters])
        for parameter, part in zip(parameters, parts, strict=True):
            # Autograd adds in place to a gradient that is there, so it stays part of the vector.
            parameter.grad = part.view_as(parameter)


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
