"""Triton without a GPU: kernels are neither compiled nor run, but chosen and launched as on an H100.

What is left is the work of the host, and the list of what Triton would have compiled.

python -m recipes.benchmarks.gpu.stubs     compiles the kernels of base for an H100 into TRITON_CACHE_DIR
"""

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch
from triton.backends.compiler import GPUTarget
from triton.runtime import driver
from triton.runtime.jit import JITFunction

from nmt_cli.model.config import ModelConfig
from nmt_cli.model.kernel_trials import TRIALS, Use

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
def stubbed_triton(*, compiles: bool = False) -> Iterator[list[Key]]:
    """Until the block ends, run no kernel, and compile none unless `compiles`. Yield the list of those that
    Triton would compile, in order. Tensors on the CPU stand for tensors on the device.

    The process cannot run these kernels after the block.
    """
    compiled: list[Key] = []
    kernel = SimpleNamespace(run=_ignore, launch_metadata=_ignore, function=0, packed_metadata=())

    def compile_stub(
        self: Any,
        key: str,
        signature: Any,
        device: int,
        constants: Any,
        options: Any,
        attributes: Any,
        *_: Any,
    ) -> Any:
        compiled.append((f"{self.__module__.rpartition('.')[2]}.{self.__name__}", key))
        if compiles:
            source = self.ASTSource(self, signature, constants, attributes)
            self.compile(source, target=TARGET, options=options.__dict__)
        self.device_caches[device][0][key] = kernel
        return kernel

    with (
        patch.object(JITFunction, "_do_compile", compile_stub),
        patch.object(driver, "_active", _Driver()),
    ):
        yield compiled


def main() -> None:
    """Compile what the trials of kernels use, for the base model with the vocabulary of `step.py`."""
    device = torch.device("cpu")
    with stubbed_triton(compiles=True) as compiled:
        for trials in TRIALS.values():
            for kernel, _ in trials(Use(ModelConfig(), torch.bfloat16, 37_000, 0.1), device):
                kernel(torch.bfloat16)
    print(f"compiled {len(compiled)} kernels")


if __name__ == "__main__":
    main()
