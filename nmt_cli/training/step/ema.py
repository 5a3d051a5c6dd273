"""The exponential moving average (EMA) of the weights, which often translates better than the weights."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor

from nmt_cli.checkpoints.model_folder import weights
from nmt_cli.model.transformer import Transformer
from nmt_cli.runtime.kernels.torch_private import lerp_all


class Ema:
    """A moving average of a model's weights, by name in `tensors`. At first, it is a copy of the weights."""

    def __init__(self, model: Transformer, decay: float) -> None:
        """Copy the weights. `decay` is the largest fraction of the average that an update keeps."""
        self._model, self._decay = model, decay
        self.tensors = {name: parameter.detach().clone() for name, parameter in weights(model).items()}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Set the average to copies of `tensors`, by name. `tensors` must have all names of weights."""
        for name, mean in self.tensors.items():
            mean.copy_(tensors[name])

    @torch.no_grad()
    def update(self, number: int) -> None:
        """Move the average towards the current weights: decay x average + (1 - decay) x weights.

        number: the number of the update, from 1. The decay is (1 + number) / (10 + number), up to the
            setting.
        """
        # The decay is smaller in the first updates, so that the random first weights fade quickly.
        decay = min(self._decay, (1 + number) / (10 + number))
        lerp_all(list(self.tensors.values()), list(weights(self._model).values()), 1 - decay)

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Within the block, replace the model's weights by the average. Then restore the exact weights."""
        own = {name: parameter.detach().clone() for name, parameter in weights(self._model).items()}
        self._fill(self.tensors)
        try:
            yield
        finally:
            self._fill(own)

    @torch.no_grad()
    def _fill(self, tensors: Mapping[str, Tensor]) -> None:
        """Overwrite the model's weights with `tensors`, by name."""
        for name, parameter in weights(self._model).items():
            parameter.copy_(tensors[name])
