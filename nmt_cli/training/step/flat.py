"""Stores the trained parameters of a model in one vector, and their gradients in another.

An operation on all parameters is then one operation on a vector.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from nmt_cli.runtime.kernels.torch_private import add_all, copy_all, put_parameter
from nmt_cli.runtime.memory import has_own_memory

UNIT = 16
"""Parameters begin at multiples of this many numbers, which devices read at once."""

LOSSES = 2
"""Number of losses: the loss with label smoothing and NLL, summed over the tokens."""


class Parameters:
    """The trained parameters of a model, as views of one vector. Frozen parameters are left out."""

    def __init__(self, model: nn.Module, last: Collection[str] = ()) -> None:
        """Move trained parameters to a vector, each padded with zeros to a multiple of `UNIT`. Parameters
        whose names are in `last` come after all others."""
        names = [name for name, parameter in model.named_parameters() if parameter.requires_grad]
        self.by_name = {name: model.get_parameter(name) for name in sorted(names, key=last.__contains__)}
        self.spans: dict[str, slice] = {}
        """The slice of the vector that holds each parameter, without the padding up to the next unit."""

        end = 0
        for name, parameter in self.by_name.items():
            self.spans[name] = slice(end, end + parameter.numel())
            end += _rounded(parameter.numel())
        like = next(iter(self.by_name.values())).detach()
        # One vector each for parameters, gradients and Adam's state lowered a step of the base model from 876
        # operations to 697.
        self.vector = like.new_zeros(end)
        for parameter, view in zip(self.by_name.values(), self.views(self.vector), strict=True):
            view.copy_(parameter.detach())
            parameter.data = view

    def views(self, vector: Tensor) -> list[Tensor]:
        """Return a view of each parameter's slice of `vector`, in the parameter's shape and in order."""
        return list(self.named_views(vector).values())

    def named_views(self, vector: Tensor) -> dict[str, Tensor]:
        """Return a view of each parameter's slice of `vector`, by name. A shorter `vector` has the first
        parameters only."""
        spans = {name: span for name, span in self.spans.items() if span.stop <= len(vector)}
        return {name: vector[span].view_as(self.by_name[name]) for name, span in spans.items()}


class Halves:
    """Half-precision copies of the parameters of linear layers, made once for all micro-batches of a step."""

    def __init__(self, model: nn.Module, dtype: torch.dtype) -> None:
        """Allocate copies in `dtype` of linear layers' parameters. Copies are 0 until the first `refresh`."""
        self._slots = [
            (module, key, parameter)
            for module in model.modules()
            if isinstance(module, nn.Linear)
            for key, parameter in module.named_parameters(recurse=False)
        ]
        self._originals = [parameter.detach() for _, _, parameter in self._slots]
        sizes = [_rounded(original.numel()) for original in self._originals]
        parts = torch.split(torch.zeros(sum(sizes), dtype=dtype, device=self._originals[0].device), sizes)
        self._copies = [
            nn.Parameter(part[: original.numel()].view_as(original), requires_grad=parameter.requires_grad)
            for part, original, (_, _, parameter) in zip(parts, self._originals, self._slots, strict=True)
        ]

    def refresh(self) -> None:
        """Overwrite the copies by the current parameters, converted to half precision."""
        copy_all([copy.detach() for copy in self._copies], self._originals)

    def instead_of(self, parameters: Sequence[nn.Parameter]) -> list[nn.Parameter]:
        """Return the copy of each of `parameters`, in order, or the parameter itself if it has no copy."""
        copies = {
            id(parameter): copy for (*_, parameter), copy in zip(self._slots, self._copies, strict=True)
        }
        return [copies.get(id(parameter), parameter) for parameter in parameters]

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Let linear layers compute with the copies within the block. Then put their own parameters back."""
        try:
            for (module, key, _), copy in zip(self._slots, self._copies, strict=True):
                put_parameter(module, key, copy)
            yield
        finally:
            for module, key, parameter in self._slots:
                put_parameter(module, key, parameter)


class Gradients:
    """The gradients of `parameters`, then the losses, in one vector. Each `grad` is a view of this vector."""

    def __init__(self, parameters: Parameters, halves: Halves | None = None) -> None:
        """Allocate zeros, with a view as each `grad`. With `halves`, take the gradients of its copies."""
        size, trained_parameters = len(parameters.vector), list(parameters.by_name.values())
        # The losses are in the same vector, so that ranks sum once per step.
        self.all = parameters.vector.new_zeros(size + LOSSES)
        """`flat` followed by `losses`, the vector that ranks sum up."""
        self.flat, self.losses = torch.split(self.all, [size, LOSSES])
        self._parts = parameters.views(self.flat)
        for parameter, part in zip(trained_parameters, self._parts, strict=True):
            # Autograd adds in place to an existing gradient, so it stays part of the vector.
            parameter.grad = part
        self._inputs = halves.instead_of(trained_parameters) if halves else trained_parameters
        # Otherwise autograd adds each gradient as soon as it is computed, which needs less memory.
        self._at_once = halves is not None or has_own_memory(self.all.device)

    def add(self, loss: Tensor, factor: Tensor, losses: Tensor, *, first: bool) -> None:
        """Compute the gradients of `loss`, times `factor`, and add them to `flat`. Add `losses` to the sums
        of the losses. With `first`, overwrite both instead of adding."""
        if not self._at_once:
            if first:
                self.all.zero_()
            loss.backward(factor)  # type: ignore[no-untyped-call]  # torch has no type for it
            self.losses += losses
            return
        # Autograd would launch a kernel for each parameter. Compiled code gives all gradients at the same
        # time anyway, so they are added together.
        gradients: tuple[Tensor | None, ...] = torch.autograd.grad(
            loss, self._inputs, factor, allow_unused=True
        )
        by_dtype: dict[torch.dtype, tuple[list[Tensor], list[Tensor]]] = defaultdict(lambda: ([], []))
        for part, gradient in zip([*self._parts, self.losses], [*gradients, losses], strict=True):
            if gradient is not None:
                by_dtype[gradient.dtype][0].append(part)
                by_dtype[gradient.dtype][1].append(gradient)
            elif first:
                part.zero_()
        for parts, summands in by_dtype.values():
            (copy_all if first else add_all)(parts, summands)


def trained(model: nn.Module) -> list[nn.Parameter]:
    """Return the parameters of `model` that are not frozen, in its order."""
    return [parameter for parameter in model.parameters() if parameter.requires_grad]


def _rounded(size: int) -> int:
    """Return `size` rounded up to a multiple of `UNIT`."""
    return -(-size // UNIT) * UNIT
