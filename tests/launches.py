"""Observe the operations that code would run on a device, without that device."""

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode


class Operations(TorchDispatchMode):  # type: ignore[no-untyped-call]  # PyTorch's class is untyped
    """A context that records the names of operations, and the largest number of elements of a result."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.names: list[str] = []
        self.largest = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> object:
        result = func(*args, **kwargs or {})
        self.names.append(func.overloadpacket.__name__)
        sizes = [x.numel() for x in pytree.tree_leaves(result) if isinstance(x, Tensor)]
        self.largest = max(self.largest, *sizes, 0)
        return result


class Strict(TorchDispatchMode):  # type: ignore[no-untyped-call]  # PyTorch's class is untyped
    """A context that fails for operations that wait for the device, read from it, or copy to it.

    Fake tensors count as tensors on the device, real ones as tensors on the host. PyTorch without CUDA cannot
    compute gradients of fake tensors on a GPU, so they claim to be on the CPU.
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
        # The plan of attention is made and used on the host.
        host_tensors = [x for x in tensors if not isinstance(x, FakeTensor)]
        assert not host_tensors or func.namespace == "nmt", f"{name} has a tensor on the host as argument"
        return func(*args, **kwargs or {})


def printed_by(module: str, *arguments: str) -> list[dict[str, Any]]:
    """Return the JSON objects that `python -m MODULE` prints, which needs Triton's compiler but no GPU.

    Skip the test without the compiler.
    """
    if find_spec("triton.backends.nvidia") is None:
        pytest.skip("this Triton does not compile for NVIDIA devices")
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    command = [sys.executable, "-m", module, *arguments]
    root = Path(__file__).parents[1]
    done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]
