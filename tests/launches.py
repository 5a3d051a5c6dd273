"""What is asked of a device, watched without one."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

Run = tuple[Any, tuple[Any, ...], dict[str, Any], object]


class Tape(TorchDispatchMode):  # type: ignore[no-untyped-call]  # PyTorch's class is untyped
    """Writes down operations with what they were given: tensors, but also numbers that the host knew."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.runs: list[Run] = []
        self._before: list[tuple[Tensor, Tensor]] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> object:
        for given, known in zip(args, func._schema.arguments, strict=False):
            if isinstance(given, Tensor) and known.is_write:
                self._before.append((given, given.clone()))
        result = func(*args, **kwargs or {})
        # What may be a view is a copy where the layout or the type demands it.
        if not func.is_view or not (isinstance(result, Tensor) and _shared(args[0], result)):
            self.runs.append((func, args, kwargs or {}, result))
        return result

    @torch.no_grad()
    def again(self) -> None:
        """The same operations on the same tensors, to the same places."""
        for func, args, kwargs, result in self.runs:
            for place, value in zip(
                pytree.tree_leaves(result), pytree.tree_leaves(func(*args, **kwargs)), strict=True
            ):
                if isinstance(place, Tensor) and place is not value:
                    place.copy_(value)

    def undo(self) -> None:
        """Give whatever was written to what it held before."""
        for place, value in reversed(self._before):
            place.copy_(value)


def _shared(x: Tensor, y: Tensor) -> bool:
    return x.untyped_storage().data_ptr() == y.untyped_storage().data_ptr()


def record(work: Callable[[], None]) -> Callable[[], None]:
    """As a GPU does it: what is recorded is not done."""
    with Tape() as tape:
        work()
    tape.undo()
    again: Callable[[], None] = tape.again
    return again


class Strict(TorchDispatchMode):  # type: ignore[no-untyped-call]  # PyTorch's class is untyped
    """Fails on whatever waits for the device, reads what is on it, or gives it something of the host.

    Fake tensors are those of the device, whatever device they say, and real ones the host's: PyTorch without
    CUDA does not go backward on fakes of a GPU.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> object:
        name = func.overloadpacket.__name__
        tensors = [x for x in pytree.tree_leaves((args, kwargs)) if isinstance(x, Tensor)]
        waits: set[Any] = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape} & {*func.tags}
        if name == "index" or "index_put" in name:  # only with masks
            waits = {x.dtype for x in tensors[1:]} & {torch.bool, torch.uint8}
        assert not waits and name != "lift_fresh", name
        # The plan of attention is of the host, and meant for it.
        of_host = [x for x in tensors if not isinstance(x, FakeTensor)]
        assert not of_host or func.namespace == "nmt", f"{name} is given a tensor of the host"
        return func(*args, **kwargs or {})
