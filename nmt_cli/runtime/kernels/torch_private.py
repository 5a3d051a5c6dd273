"""All private functions of PyTorch that are used, each with a fallback for versions that lack it.

Whether a function is there is asked at each call, so that torch.compile sees a plain call either way.
"""

import ctypes
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

Compute = Callable[[Tensor], Tensor]

KERNELS_KEPT = {"ONEDNN_PRIMITIVE_CACHE_CAPACITY": "256", "LRU_CACHE_CAPACITY": "1"}
"""How many kernels oneDNN keeps, and how many PyTorch keeps on top of that.

Each number of rows has its own kernel for each matrix, of 1/4 MB or more, and 1024 are kept in either place
where nothing is said: hundreds of megabytes. A step of decoding needs few; what oneDNN keeps serves both."""


# Training


def update_loss_scale(scale: Tensor, good_steps: Tensor, bad: Tensor, growth_steps: int) -> None:
    """Halve `scale` where `bad` is 1; double it after `growth_steps` good steps unless that is infinite.

    All are 0-d tensors of one device. The first two are changed in place; the host does not wait for the
    device.
    """
    if hasattr(torch, "_amp_update_scale_"):
        torch._amp_update_scale_(scale, good_steps, bad, 2.0, 0.5, growth_steps)
        return
    good_steps.add_(1)
    whole = good_steps == growth_steps
    grown = torch.where(whole & (2 * scale).isfinite(), 2 * scale, scale)
    scale.copy_(torch.where(bad > 0, scale / 2, grown))
    good_steps.masked_fill_(whole | (bad > 0), 0)


def step_unless(optimizer: torch.optim.Optimizer, bad: Tensor, scale: Tensor | None) -> None:
    """Take a step of a fused optimiser unless `bad` is 1, with gradients divided by `scale` if there is one.

    Its kernels read the two attributes that PyTorch's gradient scaler sets, so the host does not wait for the
    device; the fallback does.
    """
    if getattr(optimizer, "_step_supports_amp_scaling", False):
        optimizer.found_inf = bad  # type: ignore[attr-defined]
        optimizer.grad_scale = scale  # type: ignore[attr-defined]
        optimizer.step()
    elif not bad.item():
        for group in optimizer.param_groups if scale is not None else ():
            for parameter in group["params"]:
                if parameter.grad is not None:
                    parameter.grad.div_(scale)
        optimizer.step()


def lerp_all(means: Sequence[Tensor], values: Sequence[Tensor], share: float) -> None:
    """Move each of `means` by `share` of the way to its value, in place."""
    if hasattr(torch, "_foreach_lerp_"):
        torch._foreach_lerp_(list(means), list(values), share)
        return
    for mean, value in zip(means, values, strict=True):
        mean.lerp_(value, share)


def add_all(totals: Sequence[Tensor], values: Sequence[Tensor]) -> None:
    """Add to each of `totals` its value, in place, with few launches."""
    if hasattr(torch, "_foreach_add_"):
        torch._foreach_add_(list(totals), list(values))
        return
    for total, value in zip(totals, values, strict=True):
        total.add_(value)


def copy_all(places: Sequence[Tensor], values: Sequence[Tensor]) -> None:
    """Copy into each of `places` its value, which may be of another dtype, with few launches."""
    if hasattr(torch, "_foreach_copy_"):
        torch._foreach_copy_(list(places), list(values))
        return
    for place, value in zip(places, values, strict=True):
        place.copy_(value)


def put_parameter(module: nn.Module, name: str, parameter: nn.Parameter) -> None:
    """Put `parameter` in the place of the one of this name, as assigning it does, which takes ten times as
    long."""
    if hasattr(module, "_parameters"):
        module._parameters[name] = parameter
        return
    setattr(module, name, parameter)


def add_product(total: Tensor, left: Tensor, right: Tensor) -> None:
    """Add the product of two matrices to `total`, in place.

    Where factors are half and `total` is not, a GPU does it at once, all in fp32; without that function, the
    product is rounded to half before it is added.
    """
    if total.dtype == left.dtype:
        total.addmm_(left, right)
    elif total.is_cuda and hasattr(torch.ops.aten.addmm, "dtype_out"):
        torch.addmm(total, left, right, out_dtype=total.dtype, out=total)
    else:
        total += left @ right


def relu_product(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """The ReLU of `F.linear`, without gradients; a GPU does it all in the product's kernel."""
    if hasattr(torch.ops.aten, "_addmm_activation"):
        out: Tensor = torch.ops.aten._addmm_activation(bias, x, weight.mT)
        return out
    return F.linear(x, weight, bias).relu_()


def softmax_backward(d_out: Tensor, out: Tensor) -> Tensor:
    """The gradient of a softmax's input, over the last axis, from its output `out` and the gradient of
    that."""
    if hasattr(torch, "_softmax_backward_data"):
        return torch._softmax_backward_data(d_out, out, -1, out.dtype)
    weighted = d_out * out
    return weighted - out * weighted.sum(-1, keepdim=True)


@contextmanager
def no_kernels_chosen_by_speed() -> Iterator[None]:
    """A context in which `torch.compile` makes the same kernels in each run.

    Otherwise it times several and takes the fastest, and their bits differ. Versions that can't promise this
    do not compile at all within it.
    """
    from torch._inductor import config  # takes its time

    if not hasattr(config, "deterministic"):
        with torch.compiler.set_stance("force_eager"):
            yield
        return
    before, config.deterministic = config.deterministic, True
    try:
        yield
    finally:
        config.deterministic = before


@contextmanager
def products_by_onednn() -> Iterator[None]:
    """A context in which oneDNN computes products of fp32 where it is the faster one and rounds no factor.

    PyTorch leaves them to MKL, which knows Intel's processors best: on others it reaches half of the speed,
    or less. One switch says both who computes and how exactly, and its "bf16" stands for "as exactly as the
    instructions for bf16 are": those of AMX round, and processors without them compute in fp32 as before.
    """
    matmul = getattr(torch.backends.mkldnn, "matmul", None)
    before = getattr(matmul, "fp32_precision", None)
    ask = getattr(torch.cpu, "get_capabilities", dict)
    able: dict[str, object] = ask()
    if before not in ("none", "ieee") or not able.get("avx512_bf16") or able.get("amx_bf16"):
        yield
        return
    matmul.fp32_precision = "bf16"  # type: ignore[union-attr]
    try:
        if not _products_are_exact():
            matmul.fp32_precision = before  # type: ignore[union-attr]
        yield
    finally:
        matmul.fp32_precision = before  # type: ignore[union-attr]


def _products_are_exact() -> bool:
    """Whether factors of fp32 keep the bits that bf16 doesn't have."""
    fine = torch.full((256, 256), 1 + 2.0**-20)
    return torch.equal(fine @ torch.eye(256), fine)


# Translating on a CPU

BLOCK, BYTES, MULTIPLE = 64, 4, 16
"""Of the layout that oneDNN has for weights on CPUs with AVX-512, see `blocks_of`."""

LOOKED_UP = 256
"""Weights of each matrix."""


def multiplies_bf16() -> bool:
    """Whether the CPU has instructions for products of bfloat16."""
    ask = getattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", None)
    return bool(ask and ask())


def multiplies_int8() -> bool:
    """Whether PyTorch has kernels for products of 8-bit numbers on this CPU."""
    kernels = ("qlinear_prepack", "qlinear_pointwise")
    known = "x86" in torch.backends.quantized.supported_engines  # elsewhere they are there too, and slow
    return known and all(hasattr(torch.ops.onednn, name) for name in kernels)


def keep_few_kernels() -> None:
    """Bound the memory that products of ever new numbers of rows take; to be called before the first of them.

    What the user's environment says is left as it is.
    """
    for name, most in KERNELS_KEPT.items():
        os.environ.setdefault(name, most)  # both libraries look there at their first product


def lays_out_weights() -> bool:
    """Whether `laid_out` is anything but `F.linear`."""
    kernels = ("_reorder_linear_weight", "_linear_pointwise")
    available: bool = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    return available and all(hasattr(torch.ops.mkldnn, name) for name in kernels)


@dataclass(frozen=True, slots=True)
class LaidOut:
    """Computes `F.linear` with a weight that oneDNN has laid out."""

    packed: Tensor
    bias: Tensor | None
    outputs: int
    blocks: int
    """See `blocks_of`."""

    def __call__(self, x: Tensor) -> Tensor:
        """[..., inputs] to [..., outputs]."""
        out: Tensor = torch.ops.mkldnn._linear_pointwise(x, self.packed, self.bias, "none", [], "")
        return out


def laid_out(weight: Tensor, bias: Tensor | None, rows: int) -> Compute:
    """A function that computes `F.linear` with this weight, laid out to be fast for inputs of about `rows`
    rows."""
    weight = weight.detach()
    if not lays_out_weights():
        return lambda x: F.linear(x, weight, bias)
    packed = torch.ops.mkldnn._reorder_linear_weight(weight, rows)
    return LaidOut(packed, bias, len(weight), blocks_of(weight, packed))


def blocks_of(weight: Tensor, packed: Tensor) -> int:
    """Where oneDNN keeps the `weight` that it has `packed`, if in blocks of `BLOCK` outputs; else 0.

    In a row of a block stand `BYTES` bytes of each output, for one input or more; its rows are as many as
    inputs need, rounded up to a multiple of `MULTIPLE`. Behind all blocks of int8 stands for each output, as
    int32, the sum of its weights, times -1. This is oneDNN's own affair, so some of it is looked up.
    """
    private = hasattr(torch.ops.mkldnn, "data_ptr") and hasattr(torch.ops.mkldnn, "_nbytes")
    if not private or weight.dtype not in (torch.float32, torch.int8) or not weight.numel():
        return 0
    (outputs, inputs), beside = weight.shape, BYTES // weight.element_size()
    rows, high = -(-inputs // (beside * MULTIPLE)) * MULTIPLE, outputs + -outputs % BLOCK
    sums = high if weight.dtype == torch.int8 else 0
    if torch.ops.mkldnn._nbytes(packed) != (high * rows + sums) * BYTES:
        return 0
    address: int = torch.ops.mkldnn.data_ptr(packed)
    kind = ctypes.c_int8 if weight.dtype == torch.int8 else ctypes.c_float
    found = np.ctypeslib.as_array((kind * (high * rows * beside)).from_address(address))
    some = np.random.default_rng(0)
    output, place = (some.integers(size, size=LOOKED_UP) for size in (outputs, inputs))
    row = output // BLOCK * rows + place // beside
    there = found[(row * BLOCK + output % BLOCK) * beside + place % beside]
    behind = (ctypes.c_int32 * min(sums, outputs, BLOCK)).from_address(address + high * rows * BYTES)
    known = (-weight[: len(behind)].sum(1)).tolist() == list(behind)
    return address if known and np.array_equal(there, weight.numpy()[output, place]) else 0


@dataclass(frozen=True, slots=True)
class Int8Matrix:
    """A matrix [outputs, inputs] of whole numbers from -127 to 127 times each output's scale, laid out."""

    packed: Tensor
    scale: Tensor
    zeros: Tensor
    blocks: int
    """See `blocks_of`; 0 too where kernels that read there would be slow."""


def int8_matrix(whole: Tensor, scale: Tensor) -> Int8Matrix:
    """A matrix of int8 [outputs, inputs] with the scale of each output."""
    packed = torch.ops.onednn.qlinear_prepack(whole, None)
    zeros = torch.zeros(len(scale), dtype=torch.int64)
    blocks = blocks_of(whole, packed) if adds_products_in_32_bits() else 0
    return Int8Matrix(packed, scale.float(), zeros, blocks)


def int8_product(x: Tensor, zero: int, matrix: Int8Matrix) -> Tensor:
    """`F.linear` of whole numbers [rows, inputs] of uint8, to which `zero` was added.

    Each row's result depends on no other row.
    """
    given = (x, 1.0, zero, matrix.packed, matrix.scale, matrix.zeros)
    # No bias, no other scale or zero, and nothing done to the results.
    out: Tensor = torch.ops.onednn.qlinear_pointwise.default(
        *given, None, 1.0, 0, torch.float32, "none", [], ""
    )
    return out


def adds_products_in_32_bits() -> bool:
    """Return whether products of 8-bit numbers are added where they can't overflow.

    The processor's instructions do, unless `ONEDNN_MAX_CPU_ISA` keeps oneDNN from them.
    """
    ask = getattr(torch.cpu, "_is_vnni_supported", None)
    return bool(ask and ask()) and _largest_bytes_fit()


@cache
def _largest_bytes_fit() -> bool:
    weights = torch.full((16, 64), 127, dtype=torch.int8)
    packed = torch.ops.onednn.qlinear_prepack(weights, None)
    matrix = Int8Matrix(packed, torch.ones(16), torch.zeros(16, dtype=torch.int64), 0)
    largest = torch.full((16, 64), 255, dtype=torch.uint8)
    return bool((int8_product(largest, 128, matrix) == 64 * 127 * 127).all())
