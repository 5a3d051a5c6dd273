"""Schedule-free AdamW (Defazio et al. 2024): an average of the weights replaces the end of a schedule."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import ClassVar

import torch
from torch import Tensor, nn

from nmt_cli.training.config import OptimizerConfig
from nmt_cli.training.step.optimizer import SQUARE, STEP, Optimizer

Z, SUM = "z", "weight_sum"
LEAST_SUM = 1e-30
"""Replaces a sum of 0, before the first step that is not left out."""


class ScheduleFree(Optimizer):
    """Schedule-free AdamW, with the paper's names. Gradients move z. The mean of all z, weighted by squared
    learning rates, is x. Checkpoints and validation have x. The model trains with y, between x and z."""

    VECTORS: ClassVar[tuple[str, ...]] = (Z, SQUARE)
    COUNTERS: ClassVar[Mapping[str, torch.dtype]] = {STEP: torch.float32, SUM: torch.float64}

    def __init__(self, model: nn.Module, config: OptimizerConfig) -> None:
        """Move the parameters of `model` into one vector. They are the first x, y and z."""
        super().__init__(model, config)
        self._y, self._z = self.parameters.vector, self._vectors[Z]
        self._x = self._y.clone()
        self._z.copy_(self._y)

    @torch.no_grad()
    def step(self, gradients: Tensor, rate: float, bad: Tensor, scale: Tensor | None) -> None:
        good, beta2, decay = 1 - bad, self._config.beta2, self._config.weight_decay
        gradients = torch.where(bad.bool(), 0.0, gradients if scale is None else gradients / scale)
        for span, (step, weight_sum) in self._runs:
            step += good
            weight_sum += good * rate**2
            share = (good * rate**2 / weight_sum.clamp(min=LEAST_SUM)).float()
            unbiased = 1 - beta2 ** step.clamp(min=1)
            y, x, z, square = (vector[span] for vector in (self._y, self._x, self._z, self._vectors[SQUARE]))
            square.lerp_(gradients[span].square(), (1 - beta2) * good)
            direction = gradients[span] / (square / unbiased).sqrt_().add_(self._config.epsilon)
            if decay:
                direction.add_(y, alpha=decay)
            z.addcmul_(direction, good, value=-rate)
            x.lerp_(z, share)
        self._set_y()

    def restore(self, tensors: Mapping[str, Tensor]) -> int:
        """Restore the state that `tensors` returned. The model has the weights x of the checkpoint. Return
        the number of parameters whose state is restored."""
        self._x.copy_(self._y)
        self._z.copy_(self._y)
        count = super().restore(tensors)
        self._set_y()
        return count

    def average(self) -> dict[str, Tensor]:
        """Return x by name."""
        return self.parameters.named_views(self._x)

    @contextmanager
    def average_in_place(self) -> Iterator[None]:
        """Within the block, replace the model's weights y by x. Then restore the exact weights."""
        self._y.copy_(self._x)
        try:
            yield
        finally:
            self._set_y()

    def _set_y(self) -> None:
        """Set y to beta1 times x plus 1 - beta1 times z."""
        torch.lerp(self._x, self._z, 1 - self._config.beta1, out=self._y)

    def _build(self) -> None:
        """Create no Adam optimiser, as `step` computes all updates."""
