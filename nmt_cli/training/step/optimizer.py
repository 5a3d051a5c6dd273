"""Adam over one vector of parameters, or Muon for the weights of linear layers and Adam for the others.

Checkpoints store the state by parameter name.
"""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from nmt_cli.runtime.kernels.torch_private import step_unless
from nmt_cli.training.config import BETA1, OptimizerConfig
from nmt_cli.training.step.flat import UNIT, Parameters
from nmt_cli.training.step.muon import Muon, weights_of_linear_layers

MEAN, SQUARE, STEP = "exp_avg", "exp_avg_sq", "step"


class Optimizer:
    """Adam or AdamW over a model's parameters, which are moved into one vector. With optimizer.kind=muon, the
    weights of linear layers are last in the vector, and Muon updates them instead."""

    def __init__(self, model: nn.Module, config: OptimizerConfig) -> None:
        """Move the parameters of `model` into one vector, and start with moments of 0."""
        self._config, self._model = config, model
        matrices = weights_of_linear_layers(model) if config.kind == "muon" else ()
        self.parameters = Parameters(model, last=matrices)
        vector = self.parameters.vector
        self._moments = {MEAN: torch.zeros_like(vector)}
        self._muon = Muon(self.parameters, matrices, self._moments[MEAN], config.weight_decay)
        self._moments[SQUARE] = vector.new_zeros(self._muon.start)
        self._frozen: dict[str, Tensor] = {}
        """State of frozen parameters, which a later run may train again."""
        self._steps: dict[str, Tensor] = {}
        self._pieces: list[tuple[Tensor, slice]] = []
        """The parts of the vector that Adam updates as one parameter each, with their slices."""
        self._build({})

    def step(self, gradients: Tensor, rate: float, bad: Tensor, scale: Tensor | None) -> None:
        """Update all parameters with the learning rate `rate`, without waiting for the device.

        gradients: one vector, as long as that of the parameters.
        bad: 1 on the device if the step is left out. Then nothing changes.
        scale: the loss scale by which the gradients are too large, or None.
        """
        self._muon.step(gradients, rate, bad, scale)
        for piece, span in self._pieces:
            piece.grad = gradients[span]
        for group in self._adam.param_groups:
            group["lr"] = rate
        step_unless(self._adam, bad, scale)

    def tensors(self) -> dict[str, Tensor]:
        """Return the state by key: "NAME.exp_avg", "NAME.exp_avg_sq" and "NAME.step". Weights of Muon have
        the first only. For frozen parameters, return the state from the checkpoint."""
        state: dict[str, Tensor] = dict(self._frozen)
        for key, vector in self._moments.items():
            state |= {f"{name}.{key}": view for name, view in self.parameters.named_views(vector).items()}
        # A safetensors file does not store tensors that share memory.
        return state | {f"{name}.{STEP}": step.clone() for name, step in self._steps.items()}

    def restore(self, tensors: Mapping[str, Tensor]) -> int:
        """Restore the state from `tensors`, which the method `tensors` of an earlier run returned.

        A parameter for which a tensor is missing starts as in a new run, for example after a change of the
        optimiser. The state of a frozen parameter is kept as it is, for the next checkpoint. Return the
        number of parameters whose state is restored.
        """
        incomplete = {key.rpartition(".")[0] for key in self.tensors() if key not in tensors}
        for key, vector in self._moments.items():
            for name, view in self.parameters.named_views(vector).items():
                if name not in incomplete:
                    view.copy_(tensors[f"{name}.{key}"])
        frozen = [name for name, parameter in self._model.named_parameters() if not parameter.requires_grad]
        keys = [f"{name}.{key}" for name in frozen for key in (MEAN, SQUARE, STEP)]
        self._frozen = {key: tensors[key].clone() for key in keys if key in tensors}
        restored = self.parameters.spans.keys() - incomplete
        # Weights of Muon have no number of steps.
        steps = {name: tensors[f"{name}.{STEP}"] for name in restored if f"{name}.{STEP}" in tensors}
        self._build({name: float(step) for name, step in steps.items()})
        return len(restored)

    def _build(self, steps: Mapping[str, float]) -> None:
        """Create the Adam optimiser of the moments. `steps` has by name the number of steps that each
        parameter has taken. A parameter without an entry has taken none."""
        vector, runs = self.parameters.vector, self._runs(steps)
        self._steps, self._pieces = {}, [(vector[span], span) for _, span in runs]
        kind = torch.optim.Adam if self._config.kind == "adam" else torch.optim.AdamW
        self._adam = kind(
            [piece for piece, _ in self._pieces] or [vector[:0]],  # nothing is left if Muon has all
            lr=0.0,  # each step sets its own
            betas=(BETA1, self._config.beta2),
            eps=self._config.epsilon,
            weight_decay=self._config.weight_decay,
            fused=True,
        )
        for (names, span), (piece, _) in zip(runs, self._pieces, strict=True):
            step = torch.full((), steps.get(names[0], 0.0), device=vector.device)
            moments = {key: moment[span] for key, moment in self._moments.items()}
            self._adam.state[piece] = {STEP: step, **moments}
            self._steps |= dict.fromkeys(names, step)

    def _runs(self, steps: Mapping[str, float]) -> list[tuple[list[str], slice]]:
        """Return runs of adjacent parameters that have taken equally many steps, each as its names and its
        slice of the vector.

        Adam updates a run as one parameter. `steps` has the number of steps by name. The weights that Muon
        updates are left out.
        """
        runs: list[tuple[list[str], slice]] = []
        for name, span in self.parameters.spans.items():
            if span.start >= self._muon.start:
                break
            names, before = runs[-1] if runs else ([], span)
            # Adam's CPU kernel rounds differently after the last full unit, so a run ends there.
            if names and steps.get(names[0]) == steps.get(name) and (before.stop - before.start) % UNIT == 0:
                runs[-1] = ([*names, name], slice(before.start, span.stop))
            else:
                runs.append(([name], span))
        return runs
