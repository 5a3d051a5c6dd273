"""Products with weights of 8 bits: whole numbers with a scale for each output.

Each row of the inputs is rounded to 8 bits by itself, with a scale of its own: with one for all rows, a
sentence's translation would depend on who else is there.
"""

import warnings
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor

from nmt_cli.machine import torch_private
from nmt_cli.machine.kernels import compiled_kernels
from nmt_cli.machine.threads import set_own_threads
from nmt_cli.machine.torch_private import Int8Matrix

POINTWISE = "model.pointwise"
"""Where the kernels between products are."""

FEW_ROWS = 64
"""Up to so many, kernels that waste no time on single sentences; others are faster above."""


@dataclass(frozen=True, slots=True)
class InBytes:
    """Computes `F.linear`."""

    matrix: Int8Matrix
    bias: Tensor
    levels: int
    """Inputs are rounded to whole numbers from minus this to this."""

    def __call__(self, x: Tensor) -> Tensor:
        """[rows, inputs] to [rows, outputs]."""
        zero = self.levels + 1
        if len(x) <= FEW_ROWS:
            whole, scales = _rounded_rows(x, self.levels, 0, torch.float32)
        else:
            whole, scales = _rounded_rows(x, self.levels, zero, torch.uint8)
        return _scaled_rows(torch_private.int8_product(whole, zero, self.matrix), scales, self.bias)


def in_bytes(matrices: Iterable[tuple[Tensor, Tensor | None]], threads: int) -> Iterator[InBytes]:
    """All weights, rounded and laid out at once in so many threads."""
    alone = partial(set_own_threads, 1)
    weights, biases = zip(*matrices, strict=True)
    layout = torch_private.laying_out_int8()
    with ThreadPoolExecutor(threads, initializer=alone) as pool, layout, warnings.catch_warnings():
        # It is the only way to these kernels, so long as there is one.
        warnings.filterwarnings("ignore", message=".*quantized tensor creation functions.*deprecated")
        packed = list(pool.map(_int8, weights))
    # Without these instructions sums of two products overflow 16 bits unless the inputs have but 7.
    levels = 127 if torch_private.adds_products_in_32_bits() else 63
    for matrix, bias in zip(packed, biases, strict=True):
        added = torch.zeros(len(matrix.scale)) if bias is None else bias.detach()
        yield InBytes(matrix, added, levels)


def _int8(weight: Tensor) -> Int8Matrix:
    return torch_private.int8_matrix(*_rounded(weight))


def _rounded(weight: Tensor) -> tuple[Tensor, Tensor]:
    weight = weight.detach()
    largest = torch.maximum(-weight.amin(dim=1), weight.amax(dim=1))  # `aminmax` takes eight times as long
    # A row of zeros must not be divided by 0.
    scale = largest.clamp(min=torch.finfo(weight.dtype).tiny) / 127
    return (weight / scale[:, None]).round_().to(torch.int8), scale


def _rounded_rows(x_RC: Tensor, levels: int, zero: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Each row as whole numbers of `dtype` from -`levels` to `levels`, plus `zero`; and the rows' scales [R].

    `x_RC` is float32 on a CPU; a row that is not finite gets a scale that is not.
    """
    x_RC = x_RC.contiguous()
    if compiled := compiled_kernels(POINTWISE):
        array = x_RC.numpy()
        whole = np.empty(array.shape, np.float32 if dtype == torch.float32 else np.uint8)
        scales = np.empty(len(array), np.float32)
        compiled.round_rows(array, levels, zero, whole, scales)
        return torch.from_numpy(whole), torch.from_numpy(scales)
    tops_R1 = x_RC.abs().amax(1, keepdim=True).clamp(min=torch.finfo(x_RC.dtype).tiny)
    whole_RC = (x_RC * (levels / tops_R1).clamp(max=1e36)).nan_to_num_().round_().add_(zero)
    return whole_RC.to(dtype), tops_R1[:, 0] / levels


def _scaled_rows(x_RC: Tensor, scales_R: Tensor, added_C: Tensor) -> Tensor:
    """Each row times its scale, plus `added_C`; `x_RC` is used up."""
    if not (compiled := compiled_kernels(POINTWISE)):
        return x_RC.mul_(scales_R[:, None]).add_(added_C)
    compiled.scale_rows(x_RC.numpy(), scales_R.numpy(), added_C.numpy())
    return x_RC
