"""All uses of PyTorch's private functions, and checks for CPUs and builds of PyTorch without them."""

import ctypes
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

Compute = Callable[[Tensor], Tensor]

Result = TypeVar("Result")

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

    Half precision is added in fp32 on a GPU. On a CPU the product is first rounded.
    """
    if total.dtype == left.dtype:
        total.addmm_(left, right)
    elif total.is_cuda:
        torch.addmm(total, left, right, out_dtype=total.dtype, out=total)
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
    """Let oneDNN compute fp32 products within the block, if oneDNN is faster and rounds no factor.

    By default MKL computes products, with at most half of the speed on processors that are not Intel's. If
    the user has set the precision, change nothing. Change only processors with AVX-512 bf16 and without AMX.
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
    """Return whether the CPU multiplies bf16 faster than fp32 in training: Intel's with AMX, and AMD's with
    AVX-512 bf16. Other Intel CPUs with AVX-512 bf16 are not faster."""
    able = torch.cpu.get_capabilities()
    amd = str(able.get("cpu_name", "")).startswith("AMD")
    return multiplies_bf16() and bool(able.get("amx_bf16") or (amd and able.get("avx512_bf16")))


# Translating on a CPU

OUTPUTS_PER_BLOCK, BYTES_PER_OUTPUT, ROWS_ROUNDED_TO = 64, 4, 16
"""oneDNN's layout of weights on CPUs with AVX-512. See `blocks_of`."""

SAMPLED_WEIGHTS = 256
"""Number of weights of each matrix that `blocks_of` compares to verify the layout."""


def multiplies_bf16() -> bool:
    """Return whether the CPU has instructions for products of bfloat16."""
    return lays_out_weights() and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


def multiplies_int8() -> bool:
    """Return whether PyTorch has fast kernels for products of 8-bit integers on the CPU."""
    return {"x86", "onednn"} <= {*torch.backends.quantized.supported_engines}


def keep_few_kernels() -> None:
    """Limit the memory for kernels by environment variables, unless set. Call this before any product."""
    for name, limit in KERNELS_KEPT.items():
        os.environ.setdefault(name, limit)


def lays_out_weights() -> bool:
    """Return whether PyTorch has oneDNN's functions, which `laid_out` uses."""
    return bool(torch.backends.mkldnn.is_available())  # type: ignore[no-untyped-call]


@dataclass(frozen=True, slots=True)
class LaidOut:
    """`F.linear` with a weight matrix in oneDNN's own layout."""

    packed: Tensor
    bias: Tensor | None
    outputs: int
    blocks: int
    """The address of the weights, or 0. See `blocks_of`."""

    def __call__(self, x: Tensor) -> Tensor:
        """Return [..., outputs] for `x` of [..., inputs]."""
        out: Tensor = torch.ops.mkldnn._linear_pointwise(x, self.packed, self.bias, "none", [], "")
        return out


def laid_out(weight: Tensor, bias: Tensor | None, rows: int) -> LaidOut:
    """Return a function that computes `F.linear` with this weight, fast for inputs of about `rows` rows."""
    weight = weight.detach()
    packed = torch.ops.mkldnn._reorder_linear_weight(weight, rows)
    return LaidOut(packed, bias, len(weight), blocks_of(weight, packed))


def blocks_of(weight: Tensor, packed: Tensor) -> int:
    """Return the address of the weights in `packed`, oneDNN's layout of `weight`, or 0 for another layout.

    The expected layout has blocks of `OUTPUTS_PER_BLOCK` outputs. A row of a block has `BYTES_PER_OUTPUT`
    bytes of each output, for one input (fp32) or four (int8). The number of rows is rounded up to a
    multiple of `ROWS_ROUNDED_TO`. After all int8 blocks follow, as int32, the negated sums of
    weights of each output. oneDNN does not document this. So the size and a random sample are verified.
    """
    if weight.dtype not in (torch.float32, torch.int8) or not weight.numel():
        return 0
    (outputs, inputs), per_row = weight.shape, BYTES_PER_OUTPUT // weight.element_size()
    rows = -(-inputs // (per_row * ROWS_ROUNDED_TO)) * ROWS_ROUNDED_TO
    padded_outputs = outputs + -outputs % OUTPUTS_PER_BLOCK
    sums = padded_outputs if weight.dtype == torch.int8 else 0
    if torch.ops.mkldnn._nbytes(packed) != (padded_outputs * rows + sums) * BYTES_PER_OUTPUT:
        return 0
    address: int = torch.ops.mkldnn.data_ptr(packed)
    kind = ctypes.c_int8 if weight.dtype == torch.int8 else ctypes.c_float
    memory = np.ctypeslib.as_array((kind * (padded_outputs * rows * per_row)).from_address(address))
    random = np.random.default_rng(0)
    output, input_ = (random.integers(size, size=SAMPLED_WEIGHTS) for size in (outputs, inputs))
    row = output // OUTPUTS_PER_BLOCK * rows + input_ // per_row
    sample = memory[(row * OUTPUTS_PER_BLOCK + output % OUTPUTS_PER_BLOCK) * per_row + input_ % per_row]
    sums_address = address + padded_outputs * rows * BYTES_PER_OUTPUT
    negated_sums = (ctypes.c_int32 * min(sums, outputs, OUTPUTS_PER_BLOCK)).from_address(sums_address)
    sums_match = (-weight[: len(negated_sums)].sum(1)).tolist() == list(negated_sums)
    return address if sums_match and np.array_equal(sample, weight.numpy()[output, input_]) else 0


@dataclass(frozen=True, slots=True)
class Int8Matrix:
    """A matrix [outputs, inputs] of int8 from -127 to 127, laid out, and the scale of each output."""

    packed: Tensor
    scale: Tensor
    zeros: Tensor
    blocks: int
    """The address of the weights, see `blocks_of`. 0 also if kernels that read them would be slow."""


def int8_matrix(integers: Tensor, scale: Tensor) -> Int8Matrix:
    """Pack int8 `integers` [outputs, inputs] and scales of outputs for oneDNN, if `multiplies_int8()`."""
    packed = torch.ops.onednn.qlinear_prepack(integers, None)
    zeros = torch.zeros(len(scale), dtype=torch.int64)
    blocks = blocks_of(integers, packed) if adds_products_in_32_bits() else 0
    return Int8Matrix(packed, scale.float(), zeros, blocks)


def int8_product(x: Tensor, zero: int, matrix: Int8Matrix) -> Tensor:
    """Return fp32 [rows, outputs], each row independently: (uint8 `x` - `zero`) times the scaled matrix."""
    operands = (x, 1.0, zero, matrix.packed, matrix.scale, matrix.zeros)
    # Without a bias, a scale or zero point of the output, and an activation.
    out: Tensor = torch.ops.onednn.qlinear_pointwise.default(
        *operands, None, 1.0, 0, torch.float32, "none", [], ""
    )
    return out


def adds_products_in_32_bits() -> bool:
    """Return whether oneDNN sums products of int8 exactly: with VNNI instructions and without overflow."""
    return torch.cpu._is_vnni_supported() and _largest_bytes_fit()


@cache
def _largest_bytes_fit() -> bool:
    """Return whether a product of the largest 8-bit integers does not overflow, by trying one."""
    weights = torch.full((16, 64), 127, dtype=torch.int8)
    packed = torch.ops.onednn.qlinear_prepack(weights, None)
    matrix = Int8Matrix(packed, torch.ones(16), torch.zeros(16, dtype=torch.int64), 0)
    largest = torch.full((16, 64), 255, dtype=torch.uint8)
    return bool((int8_product(largest, 128, matrix) == 64 * 127 * 127).all())
