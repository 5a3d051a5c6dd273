"""What is asked of a device, watched without one."""

from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode


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
