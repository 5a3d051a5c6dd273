"""Products with 8-bit weights: integers with a scale for each output.

Each row of the inputs is rounded with its own scale, so other rows of the batch have no effect. They must not
change the last bit of an input either, because it may decide the rounding. So Numba's kernels for attention
and norms add in the same order for few rows and for many.
"""

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from types import ModuleType

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nmt_cli.runtime.kernels import standby, torch_private
from nmt_cli.runtime.kernels.loading import compiled_kernels
from nmt_cli.runtime.kernels.torch_private import Int8Matrix
from nmt_cli.runtime.threads import set_own_threads

POINTWISE = "model.pointwise"
"""Subpackage of the kernels for operations between products."""

FEW_ROWS = 8
"""Up to this number of rows, oneDNN is slower than a kernel that reads its layout."""


@dataclass(frozen=True, slots=True)
class InBytes:
    """A replacement of `F.linear` with 8-bit weights."""

    matrix: Int8Matrix
    bias: Tensor
    levels: int
    """Inputs are rounded to integers from -levels to levels."""

    def __call__(self, x: Tensor) -> Tensor:
        """Map [rows, inputs] to [rows, outputs]. The bits of a row do not depend on other rows."""
        if len(x) <= FEW_ROWS and self.blocks and (kernels := compiled_kernels("decoding.fast")):
            added, scale = self.bias.numpy(), self.matrix.scale.numpy()
            return product_of_few(kernels, x, self.blocks, added, scale, self.levels)
        whole, scales = _rounded_rows(x, self.levels)
        y = torch_private.int8_product(whole, self.levels + 1, self.matrix)
        if not (compiled := compiled_kernels(POINTWISE)):
            return y.mul_(scales[:, None]).add_(self.bias)
        compiled.scale_rows(y.numpy(), scales.numpy(), self.bias.numpy())
        return y

    @property
    def blocks(self) -> int:
        """The address of the weights, or 0 if kernels cannot read their layout."""
        return self.matrix.blocks


def product_of_few(
    kernels: ModuleType,
    x: Tensor,
    blocks: int,
    bias: NDArray[np.float32],
    scale: NDArray[np.float32],
    levels: int,
) -> Tensor:
    """Map [rows, inputs] to [rows, outputs] by `compiled.product`, in this thread and helper threads.

    `blocks` is the address of weights. `scale` is empty if they are float. `product` explains `levels`.
    """
    out = np.empty((len(x), len(bias)), np.float32)
    arguments = x.contiguous().numpy(), out, bias, scale, levels
    standby.beside(partial(kernels.product, np.zeros((2, 1), np.int64), blocks, *arguments))
    return torch.from_numpy(out)


def in_bytes(matrices: Iterable[tuple[Tensor, Tensor | None]], threads: int) -> Iterator[InBytes]:
    """Convert pairs of weight and bias (None is zeros) to 8 bits, in `threads` threads. Keep the order."""
    alone = partial(set_own_threads, 1)
    weights, biases = zip(*matrices, strict=True)
    with ThreadPoolExecutor(threads, initializer=alone) as pool:
        packed = list(pool.map(_int8, weights))
    if any(matrix.blocks for matrix in packed):
        compiled_kernels("decoding.fast")  # before worker processes are forked
    # Without these instructions, sums of two products overflow 16 bits unless inputs have only 7 bits.
    levels = 127 if torch_private.adds_products_in_32_bits() else 63
    for matrix, bias in zip(packed, biases, strict=True):
        added = torch.zeros(len(matrix.scale)) if bias is None else bias.detach()
        yield InBytes(matrix, added, levels)


def _int8(weight: Tensor) -> Int8Matrix:
    """Round a matrix [outputs, inputs] to integers from -127 to 127, with a scale for each output."""
    weight = weight.detach()
    largest = torch.maximum(-weight.amin(dim=1), weight.amax(dim=1))  # `aminmax` takes eight times as long
    # A row of zeros must not be divided by 0.
    scale = largest.clamp(min=torch.finfo(weight.dtype).tiny) / 127
    return torch_private.int8_matrix((weight / scale[:, None]).round_().to(torch.int8), scale)


def _rounded_rows(x_RC: Tensor, levels: int) -> tuple[Tensor, Tensor]:
    """Return the rows as uint8, and their scales [R]. A row is about (uint8 - (`levels` + 1)) x scale.

    `x_RC` is float32 on a CPU. The scale of a row with nan or infinity is not finite.
    """
    x_RC, zero = x_RC.contiguous(), levels + 1
    if compiled := compiled_kernels(POINTWISE):
        whole, scales = np.empty(x_RC.shape, np.uint8), np.empty(len(x_RC), np.float32)
        compiled.round_rows(x_RC.numpy(), levels, zero, whole, scales)
        return torch.from_numpy(whole), torch.from_numpy(scales)
    tops_R1 = x_RC.abs().amax(1, keepdim=True).clamp(min=torch.finfo(x_RC.dtype).tiny)
    whole_RC = (x_RC * (levels / tops_R1).clamp(max=1e36)).nan_to_num_().round_().add_(zero)
    return whole_RC.to(torch.uint8), tops_R1[:, 0] / levels
