"""All uses of PyTorch's private functions, and checks for CPUs and builds of PyTorch without them."""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

Result = TypeVar("Result")

# After 800 shapes of one matrix, the kernels held 433 MB by default, and hold 11 MB with these numbers.
KERNELS_KEPT = {"ONEDNN_PRIMITIVE_CACHE_CAPACITY": "256", "LRU_CACHE_CAPACITY": "1"}
"""Maximum number of kernels that oneDNN keeps, and that PyTorch keeps in addition.

A matrix needs another kernel for each number of rows, of at least 256 KiB. By default both libraries keep
1,024 kernels, hundreds of megabytes. A decoding step needs few of them, and oneDNN's cache serves PyTorch
too.
"""


# Training


def update_loss_scale(scale: Tensor, good_steps: Tensor, bad: Tensor, growth_steps: int) -> None:
    """Halve `scale` if `bad` is 1. Double `scale` after `growth_steps` good steps, if it stays finite.

    `scale` and `good_steps`, 0-d like `bad`, change in place. The host does not wait for the device.
    """
    torch._amp_update_scale_(scale, good_steps, bad, 2.0, 0.5, growth_steps)


def step_unless(optimizer: torch.optim.Adam, bad: Tensor, scale: Tensor | None) -> None:
    """Take a step of a fused optimizer unless `bad` is 1. Divide gradients by `scale` first, if given.

    The host does not wait for the device.
    """
    optimizer.found_inf = bad  # type: ignore[attr-defined]
    optimizer.grad_scale = scale  # type: ignore[attr-defined]
    optimizer.step()


def lerp_all(means: Sequence[Tensor], values: Sequence[Tensor], share: float) -> None:
    """Move each of `means`, in place, toward its value by `share` of the difference."""
    torch._foreach_lerp_(list(means), list(values), share)


def add_all(totals: Sequence[Tensor], values: Sequence[Tensor]) -> None:
    """Add to each total its value, in place, with few kernel launches."""
    torch._foreach_add_(list(totals), list(values))


def copy_all(targets: Sequence[Tensor], values: Sequence[Tensor]) -> None:
    """Overwrite each target by its value, which may have another dtype, with few kernel launches."""
    torch._foreach_copy_(list(targets), list(values))


def put_parameter(module: nn.Module, name: str, parameter: nn.Parameter) -> None:
    """Replace the parameter `name` of `module`, ten times as fast as assigning an attribute."""
    module._parameters[name] = parameter


def add_product(total: Tensor, left: Tensor, right: Tensor) -> None:
    """Add the product of two matrices to `total`, in place.

    Half precision is added in fp32 on a GPU. On a CPU, and by some builds of PyTorch for ROCm, the product is
    first rounded.
    """
    if total.dtype == left.dtype:
        total.addmm_(left, right)
    elif total.is_cuda:
        try:
            torch.addmm(total, left, right, out_dtype=total.dtype, out=total)
        except torch.OutOfMemoryError:
            raise
        except RuntimeError:
            total += left @ right
    else:
        total += left @ right


def relu_product(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Return the ReLU of `F.linear(x, weight, bias)`, without gradients, by one kernel on a GPU."""
    out: Tensor = torch.ops.aten._addmm_activation(bias, x, weight.mT)
    return out


def softmax_backward(d_out: Tensor, out: Tensor) -> Tensor:
    """Return the gradient of a softmax's input, given that of its output `out`, over the last axis."""
    return torch._softmax_backward_data(d_out, out, -1, out.dtype)


def compiled_for_all_sizes(function: Callable[..., Result], **options: Any) -> Callable[..., Result]:
    """Return `torch.compile` of `function` for inputs of all sizes, with `options` such as `backend`.

    Numbers in it, such as the epsilon of a norm, are constants. By default PyTorch first compiles them as
    inputs, which fails, so that it compiles all again.
    """
    compiled = torch.compile(function, dynamic=True, **options)

    def run(*inputs: Any) -> Result:
        from torch._dynamo import config  # slow to import

        with config.patch(specialize_float=True):
            return compiled(*inputs)

    return run


@contextmanager
def no_kernels_chosen_by_speed() -> Iterator[None]:
    """Let `torch.compile` create the same kernels in each run within the block.

    By default, PyTorch takes the fastest of several kernels, whose results differ in the last bits.
    """
    from torch._inductor import config  # slow to import

    with config.patch(deterministic=True):
        yield


@contextmanager
def products_by_onednn() -> Iterator[None]:
    """Let oneDNN compute fp32 products within the block, on processors where it is faster without rounding
    factors.

    These have AVX-512 bf16 and no AMX. There MKL, the default, has at most half of the speed if they are not
    Intel's. Elsewhere nothing changes, and neither if the user has set the precision.
    """
    matmul = torch.backends.mkldnn.matmul  # type: ignore[attr-defined]
    before, capabilities = matmul.fp32_precision, torch.cpu.get_capabilities()
    can_be_exact = capabilities.get("avx512_bf16") and not capabilities.get("amx_bf16")
    if before not in ("none", "ieee") or not can_be_exact:
        yield
        return
    matmul.fp32_precision = "bf16"
    try:
        if not _products_are_exact():
            matmul.fp32_precision = before
        yield
    finally:
        matmul.fp32_precision = before


def _products_are_exact() -> bool:
    """Return whether products of fp32 matrices keep more bits of the factors than bf16 has, by trying one."""
    fine = torch.full((256, 256), 1 + 2.0**-20)
    return torch.equal(fine @ torch.eye(256), fine)


def trains_faster_in_bf16() -> bool:
    """Return whether the CPU multiplies bf16 faster than fp32 in training. Intel's do with AMX, and AMD's
    with AVX-512 bf16. With the latter alone, Intel's do not."""
    able = torch.cpu.get_capabilities()
    amd = str(able.get("cpu_name", "")).startswith("AMD")
    return multiplies_bf16() and bool(able.get("amx_bf16") or (amd and able.get("avx512_bf16")))


# Translating on a CPU


def multiplies_bf16() -> bool:
    """Return whether the CPU has instructions for products of bfloat16."""
    has_onednn = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    return bool(has_onednn and torch.ops.mkldnn._is_mkldnn_bf16_supported())


def keep_few_kernels() -> None:
    """Limit the memory for kernels by environment variables, unless set. Call this before any product."""
    for name, limit in KERNELS_KEPT.items():
        os.environ.setdefault(name, limit)
