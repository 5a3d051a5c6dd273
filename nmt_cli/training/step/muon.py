"""Muon (Jordan et al. 2024): updates matrices by their orthogonalised momentum.

The root mean square of an update is 0.2 times the learning rate for any shape, about that of Adam (Liu et al.
2025, "Muon is scalable for LLM training"). So one learning rate serves both. A matrix with several
projections, such as queries, keys and values, is orthogonalised as a whole.
"""

from collections import defaultdict
from collections.abc import Collection

import torch
from torch import Tensor, nn

from nmt_cli.runtime.devices import translating_precisions
from nmt_cli.runtime.kernels.torch_private import copy_all
from nmt_cli.training.step.flat import Parameters

MOMENTUM, UPDATE_SIZE = 0.95, 0.2
COEFFICIENTS, ITERATIONS, LEAST_NORM = (3.4445, -4.7750, 2.0315), 5, 1e-7
"""The polynomial of `orthogonalized`, as in `torch.optim.Muon`."""


class Muon:
    """Muon with Nesterov momentum for the last parameters of a vector."""

    def __init__(
        self, parameters: Parameters, names: Collection[str], momentum: Tensor, weight_decay: float
    ) -> None:
        """Update the parameters `names`, the last ones of `parameters`. `momentum` is as long as the whole
        vector. `weight_decay` is decoupled, as in AdamW."""
        spans = {name: span for name, span in parameters.spans.items() if name in names}
        self.start = min((span.start for span in spans.values()), default=len(parameters.vector))
        """The index in the vector of the first number that Muon updates."""

        self._weights, self._momentum = parameters.vector[self.start :], momentum[self.start :]
        self._weight_decay = weight_decay
        self._spans: dict[torch.Size, list[slice]] = defaultdict(list)
        for name, span in spans.items():
            here = slice(span.start - self.start, span.stop - self.start)
            self._spans[parameters.by_name[name].shape].append(here)

    @torch.no_grad()
    def step(self, gradients: Tensor, rate: float, bad: Tensor, scale: Tensor | None) -> None:
        """Update the matrices as `Optimizer.step` does. Without matrices, do nothing."""
        if not self._spans:
            return
        # torch.optim.Muon cannot leave out a step without waiting for the device.
        good = 1 - bad
        gradient = gradients[self.start :] if scale is None else gradients[self.start :] / scale
        gradient = torch.where(bad.bool(), 0.0, gradient)
        self._momentum.lerp_(gradient, (1 - MOMENTUM) * good)
        update = gradient.lerp_(self._momentum, MOMENTUM)
        for shape, spans in self._spans.items():
            views = [update[span].view(shape) for span in spans]
            matrices = orthogonalized(torch.stack(views)).float()
            # The root mean square of an orthogonal matrix is 1 / sqrt(max(shape)).
            copy_all(views, list(matrices * (UPDATE_SIZE * max(shape) ** 0.5)))
        if self._weight_decay:
            self._weights.mul_(1 - rate * self._weight_decay * good)
        self._weights.addcmul_(update, good, value=-rate)


def orthogonalized(matrices: Tensor) -> Tensor:
    """Return matrices with the same singular vectors as `matrices`, [N, rows, columns], and singular values
    from about 0.7 to 1.2.

    They are computed by Newton-Schulz iterations. A matrix of zeros stays zeros.
    """
    has_bf16 = "bf16" in translating_precisions(matrices.device)
    # Without instructions for bf16, a CPU computes in fp32 up to 20 times as fast.
    x = matrices.to(torch.bfloat16 if has_bf16 else torch.float32)
    x = x.mT if x.shape[1] > x.shape[2] else x
    x = x / x.norm(dim=(1, 2), keepdim=True).clamp(min=LEAST_NORM)
    a, b, c = COEFFICIENTS
    for _ in range(ITERATIONS):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.mT if matrices.shape[1] > matrices.shape[2] else x


def weights_of_linear_layers(model: nn.Module) -> list[str]:
    """Return the names of the weights of all linear layers, without embeddings and the output matrix."""
    return [f"{name}.weight" for name, module in model.named_modules() if isinstance(module, nn.Linear)]
