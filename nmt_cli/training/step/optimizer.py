"""Adam over one vector of parameters. Checkpoints store its state by parameter name."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import ClassVar

import torch
from torch import Tensor, nn

from nmt_cli.runtime.kernels.torch_private import step_unless
from nmt_cli.training.config import OptimizerConfig
from nmt_cli.training.step.flat import UNIT, Parameters
from nmt_cli.training.step.muon import Muon, weights_of_linear_layers

MEAN, SQUARE, STEP = "exp_avg", "exp_avg_sq", "step"


class Optimizer:
    """Adam or AdamW over a model's parameters, which are moved into one vector. With optimizer.kind=muon, the
    weights of linear layers are last in the vector, and Muon updates them instead."""

    VECTORS: ClassVar[tuple[str, ...]] = (MEAN, SQUARE)
    """Keys of the state with a number for each weight."""

    COUNTERS: ClassVar[Mapping[str, torch.dtype]] = {STEP: torch.float32}
    """Keys of the state with one number for each parameter."""

    def __init__(self, model: nn.Module, config: OptimizerConfig) -> None:
        """Move the parameters of `model` into one vector, and start with a state of 0."""
        self._config, self._model = config, model
        matrices = weights_of_linear_layers(model) if config.kind == "muon" else ()
        self.parameters = Parameters(model, last=matrices)
        vector = self.parameters.vector
        self._vectors = {key: torch.zeros_like(vector) for key in self.VECTORS}
        self._muon = Muon(self.parameters, matrices, self._vectors[self.VECTORS[0]], config.weight_decay)
        self._vectors[SQUARE] = vector.new_zeros(self._muon.start)
        self._frozen: dict[str, Tensor] = {}
        """State of frozen parameters, which a later run may train again."""
        self._counters: dict[str, Tensor] = {}
        self._runs: list[tuple[slice, list[Tensor]]] = []
        """Slices of the vector whose parameters have equal counters, with these counters."""
        self._start({})

    def step(self, gradients: Tensor, rate: float, bad: Tensor, scale: Tensor | None) -> None:
        """Update all parameters with learning rate `rate`. If `bad` is 1, change nothing. `gradients` is one
        vector, times the loss scale `scale` if there is one. Do not wait for the device."""
        self._muon.step(gradients, rate, bad, scale)
        for piece, (span, _) in zip(self._pieces, self._runs, strict=True):
            piece.grad = gradients[span]
        for group in self._adam.param_groups:
            group["lr"] = rate
        step_unless(self._adam, bad, scale)

    def tensors(self) -> dict[str, Tensor]:
        """Return the state by key: "NAME.exp_avg", "NAME.exp_avg_sq" and "NAME.step". Weights of Muon have
        the first only. For frozen parameters, return the state from the checkpoint."""
        state: dict[str, Tensor] = dict(self._frozen)
        for key, vector in self._vectors.items():
            state |= {f"{name}.{key}": view for name, view in self.parameters.named_views(vector).items()}
        # A safetensors file does not store tensors that share memory.
        return state | {key: counter.clone() for key, counter in self._counters.items()}

    def restore(self, tensors: Mapping[str, Tensor]) -> int:
        """Restore the state that `tensors` returned. Parameters without their whole state, such as that of
        another optimiser, start as in a new run. Keep that of frozen parameters for the next checkpoint.
        Return the number of parameters whose state is restored."""
        incomplete = {key.rpartition(".")[0] for key in self.tensors() if key not in tensors}
        for key, vector in self._vectors.items():
            for name, view in self.parameters.named_views(vector).items():
                if name not in incomplete:
                    view.copy_(tensors[f"{name}.{key}"])
        frozen = [name for name, parameter in self._model.named_parameters() if not parameter.requires_grad]
        keys = [f"{name}.{key}" for name in frozen for key in (*self.VECTORS, *self.COUNTERS)]
        self._frozen = {key: tensors[key].clone() for key in keys if key in tensors}
        numbers = {key: float(tensor) for key, tensor in tensors.items() if not tensor.ndim}
        self._start({key: n for key, n in numbers.items() if key.rpartition(".")[0] not in incomplete})
        return len(self.parameters.spans.keys() - incomplete)

    def average(self) -> dict[str, Tensor]:
        """Return by name the weights to translate with that are not the model's. Adam has none."""
        return {}

    @contextmanager
    def average_in_place(self) -> Iterator[None]:
        """Within the block, replace the model's weights by `average`. Then restore the exact weights."""
        yield

    def _start(self, counters: Mapping[str, float]) -> None:
        """Create the counters of each run of parameters, from values by key. Missing values are 0."""
        device = self.parameters.vector.device
        self._runs, self._counters = [], {}
        for names, span in self._equal_runs(counters):
            values = {key: counters.get(f"{names[0]}.{key}", 0.0) for key in self.COUNTERS}
            run = {
                key: torch.full((), values[key], dtype=self.COUNTERS[key], device=device) for key in values
            }
            self._runs.append((span, [*run.values()]))
            self._counters |= {f"{name}.{key}": counter for name in names for key, counter in run.items()}
        self._build()

    def _build(self) -> None:
        """Create the Adam optimiser of the runs, with their moments and counters."""
        self._pieces = [self.parameters.vector[span] for span, _ in self._runs]
        kind = torch.optim.Adam if self._config.kind == "adam" else torch.optim.AdamW
        self._adam = kind(
            self._pieces or [self.parameters.vector[:0]],  # nothing is left if Muon has all
            lr=0.0,  # each step sets its own
            betas=(self._config.beta1, self._config.beta2),
            eps=self._config.epsilon,
            weight_decay=self._config.weight_decay,
            fused=True,
        )
        for piece, (span, (step,)) in zip(self._pieces, self._runs, strict=True):
            moments = {key: vector[span] for key, vector in self._vectors.items()}
            self._adam.state[piece] = {STEP: step, **moments}

    def _equal_runs(self, counters: Mapping[str, float]) -> list[tuple[list[str], slice]]:
        """Return names and slice of each run of adjacent parameters whose values in `counters` are equal.
        Leave out the weights of Muon."""
        runs: list[tuple[list[str], slice]] = []
        for name, span in self.parameters.spans.items():
            if span.start >= self._muon.start:
                break
            names, before = runs[-1] if runs else ([name], span)
            equal = all(
                counters.get(f"{names[0]}.{key}") == counters.get(f"{name}.{key}") for key in self.COUNTERS
            )
            # Adam's CPU kernel rounds differently after the last full unit, so a run ends there.
            if runs and equal and (before.stop - before.start) % UNIT == 0:
                runs[-1] = ([*names, name], slice(before.start, span.stop))
            else:
                runs.append(([name], span))
        return runs
