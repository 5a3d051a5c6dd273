"""Triton without a GPU: kernels are neither compiled nor run, but chosen and launched as on an H100.

What is left is the work of the host, and the list of what Triton would have compiled.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from triton.backends.compiler import GPUTarget
from triton.runtime import driver
from triton.runtime.jit import JITFunction

TARGET = GPUTarget("cuda", 90, 32)

Key = tuple[str, str]
"""The name of a kernel, and Triton's key of its types, constants and options."""


class _Driver:
    """The methods of Triton's driver that choose and launch a kernel."""

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0

    def get_current_target(self) -> GPUTarget:
        return TARGET


def _ignore(*arguments: Any, **options: Any) -> None:
    pass


@contextmanager
def stubbed_triton() -> Iterator[list[Key]]:
    """Until the block ends, compile and run no kernel. Yield the list of kernels that Triton would compile,
    in order. Tensors on the CPU stand for tensors on the device.

    The process cannot run these kernels after the block.
    """
    compiled: list[Key] = []
    kernel = SimpleNamespace(run=_ignore, launch_metadata=_ignore, function=0, packed_metadata=())

    def compile_nothing(self: Any, key: str, signature: Any, device: int, *_: Any) -> Any:
        compiled.append((f"{self.__module__.rpartition('.')[2]}.{self.__name__}", key))
        self.device_caches[device][0][key] = kernel
        return kernel

    with (
        patch.object(JITFunction, "_do_compile", compile_nothing),
        patch.object(driver, "_active", _Driver()),
    ):
        yield compiled
