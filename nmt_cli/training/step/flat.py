"""The trained parameters of a model as one vector, their gradients as another, and copies in half precision.

Whatever is done to all of them is then one operation, and a part of the vector can be a rank's share.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from nmt_cli.runtime.kernels.torch_private import add_all, copy_all, put_parameter
from nmt_cli.runtime.memory import has_own_memory

UNIT = 16
"""Parameters and shares begin at multiples of so many numbers, which GPUs and processors read at once."""

LOSSES = 2
"""Smoothed loss and NLL, summed over the tokens."""


@dataclass(frozen=True, slots=True)
class Span:
    """Where in the vector a parameter lies."""

    start: int
    size: int

    @property
    def end(self) -> int:
        """Behind its last number, and before what fills up the unit."""
        return self.start + self.size


class Parameters:
    """The trained parameters of a model, moved into one vector, of which each becomes a view."""

    def __init__(self, model: nn.Module, shares: int = 1) -> None:
        """The vector can be cut into so many equal `shares`."""
        self.by_name = {name: each for name, each in model.named_parameters() if each.requires_grad}
        self.spans: dict[str, Span] = {}
        end = 0
        for name, parameter in self.by_name.items():
            self.spans[name] = Span(end, parameter.numel())
            end += _rounded(parameter.numel(), UNIT)
        like = next(iter(self.by_name.values())).detach()
        self.vector = like.new_zeros(_rounded(end, UNIT * shares))
        for parameter, place in zip(self.by_name.values(), self.views(self.vector), strict=True):
            place.copy_(parameter.detach())
            parameter.data = place

    def views(self, vector: Tensor) -> list[Tensor]:
        """Of a vector as long as that of the parameters: each one's part, in its shape."""
        return [
            vector[span.start : span.end].view_as(self.by_name[name]) for name, span in self.spans.items()
        ]


class Halves:
    """Copies in half precision of what linear layers multiply and add, made once a step.

    Autocast makes the same ones, but one by one, and for each micro-batch; the gradients of its copies are
    converted one by one, too.
    """

    def __init__(self, model: nn.Module, dtype: torch.dtype) -> None:
        self._places = [
            (module, key, parameter)
            for module in model.modules()
            if isinstance(module, nn.Linear)
            for key, parameter in module.named_parameters(recurse=False)
        ]
        self._whole = [parameter.detach() for _, _, parameter in self._places]
        sizes = [_rounded(whole.numel(), UNIT) for whole in self._whole]
        parts = torch.split(torch.zeros(sum(sizes), dtype=dtype, device=self._whole[0].device), sizes)
        self._copies = [
            nn.Parameter(part[: whole.numel()].view_as(whole), requires_grad=parameter.requires_grad)
            for part, whole, (_, _, parameter) in zip(parts, self._whole, self._places, strict=True)
        ]

    def refresh(self) -> None:
        """Copy the parameters as they are now."""
        copy_all([copy.detach() for copy in self._copies], self._whole)

    def instead_of(self, parameters: Sequence[nn.Parameter]) -> list[nn.Parameter]:
        """What takes part in a forward pass of each of the `parameters`: its copy, or itself."""
        copies = {id(whole): copy for (_, _, whole), copy in zip(self._places, self._copies, strict=True)}
        return [copies.get(id(parameter), parameter) for parameter in parameters]

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Let the model compute with the copies within the block."""
        try:
            for (module, key, _), copy in zip(self._places, self._copies, strict=True):
                put_parameter(module, key, copy)
            yield
        finally:
            for module, key, whole in self._places:
                put_parameter(module, key, whole)


class Gradients:
    """The gradients of `parameters` as one vector, of which every parameter's gradient is a view, and the
    losses.

    So summing them over ranks, their norm and scaling them is one operation each.
    """

    def __init__(self, parameters: Parameters, halves: Halves | None = None) -> None:
        size, everything = len(parameters.vector), list(parameters.by_name.values())
        self.all = parameters.vector.new_zeros(size + LOSSES)
        """What ranks sum up: `flat`, and behind it `losses`."""
        self.flat, self.losses = torch.split(self.all, [size, LOSSES])
        self._parts = parameters.views(self.flat)
        for parameter, part in zip(everything, self._parts, strict=True):
            # Autograd adds in place to a gradient that is there, so it stays part of the vector.
            parameter.grad = part
        self._wanted = halves.instead_of(everything) if halves else everything
        # Else autograd adds each gradient when it is found, and none takes memory for long.
        self._at_once = halves is not None or has_own_memory(self.all.device)

    def add(self, loss: Tensor, factor: Tensor, losses: Tensor, *, first: bool) -> None:
        """Add the gradients of `loss` times `factor`, and `losses`; the `first` take the place of what was
        there."""
        if not self._at_once:
            if first:
                self.all.zero_()
            loss.backward(factor)  # type: ignore[no-untyped-call]  # torch leaves it so
            self.losses += losses
            return
        # Autograd would launch a kernel for each parameter, to add what is all there at the same time anyway:
        # code that was compiled gives the gradients of a whole model at once.
        found: tuple[Tensor | None, ...] = torch.autograd.grad(loss, self._wanted, factor, allow_unused=True)
        alike: dict[torch.dtype, tuple[list[Tensor], list[Tensor]]] = defaultdict(lambda: ([], []))
        for part, new in zip([*self._parts, self.losses], [*found, losses], strict=True):
            if new is not None:
                alike[new.dtype][0].append(part)
                alike[new.dtype][1].append(new)
            elif first:
                part.zero_()
        for parts, news in alike.values():
            (copy_all if first else add_all)(parts, news)


def trained(model: nn.Module) -> list[nn.Parameter]:
    """The parameters that are not frozen."""
    return [parameter for parameter in model.parameters() if parameter.requires_grad]


def _rounded(size: int, unit: int) -> int:
    return -(-size // unit) * unit
