"""Weights laid out once for translating, in the precision asked for."""

import warnings
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import chain

import torch
from torch import Tensor, nn

from nmt_cli.errors import UserError
from nmt_cli.machine import torch_private
from nmt_cli.machine.devices import Precision, is_gpu, lays_out_weights, translating_precisions
from nmt_cli.machine.threads import set_own_threads
from nmt_cli.machine.torch_private import Compute, Int8Kernel
from nmt_cli.model.transformer import Transformer

TYPICAL_ROWS = 256
"""The layout is best for about so many rows, and good for any number."""

FEW_ROWS = 64
"""Up to so many, 8-bit kernels that waste no time on single sentences; others are faster above."""


@torch.no_grad()
def pack(model: Transformer, precision: Precision, threads: int = 1) -> None:
    """Make `model` ready to translate on the device where it is; it can't be trained or saved any more."""
    torch_private.keep_few_kernels()
    device = model.device
    if precision not in (possible := translating_precisions(device)):
        where = "this GPU" if is_gpu(device) else "this CPU"
        raise UserError(f"{where} can't compute in {precision}; choose --precision {' or '.join(possible)}.")
    if precision == "int8" and "bf16" in possible:
        model.cache_dtype = torch.bfloat16  # half the bytes to read at each step, and no less exact than int8
    if precision in ("fp16", "bf16"):
        model.to(torch.float16 if precision == "fp16" else torch.bfloat16)
    if precision == "int8" or lays_out_weights(device):
        named = ((module, *child) for module in model.modules() for child in module.named_children())
        places = [(module, name) for module, name, child in named if isinstance(child, nn.Linear)]
        linears = (getattr(*place) for place in places)
        matrices = chain(
            ((each.weight, each.bias) for each in linears), [(model.output_matrix, model.output_bias)]
        )
        packed = _quantized(matrices, threads) if precision == "int8" else _laid_out(matrices)
        for place in places:  # each makes room for the next, where they are laid out as they are asked for
            setattr(*place, Packed(next(packed), getattr(*place)))
        model.packed_output = next(packed)


class Packed(nn.Module):
    """Stands in for an `nn.Linear`."""

    def __init__(self, compute: Callable[[Tensor], Tensor], linear: nn.Linear) -> None:
        super().__init__()
        self.compute = compute
        self.in_features, self.out_features = linear.in_features, linear.out_features

    def forward(self, x: Tensor) -> Tensor:
        """[..., inputs] to [..., outputs]."""
        return self.compute(x)


def _laid_out(matrices: Iterable[tuple[Tensor, Tensor | None]]) -> Iterator[Compute]:
    return (torch_private.laid_out(weight, bias, TYPICAL_ROWS) for weight, bias in matrices)


def _quantized(matrices: Iterable[tuple[Tensor, Tensor | None]], threads: int) -> Iterator[Compute]:
    """Weights as int8 with a scale for each output; inputs are rounded to 8 bits at each call.

    All are made at once, in so many threads.
    """
    alone = partial(set_own_threads, 1)
    with ThreadPoolExecutor(threads, initializer=alone) as pool, warnings.catch_warnings():
        # It is the only way to these kernels, so long as there is one.
        warnings.filterwarnings("ignore", message=".*quantized tensor creation functions.*deprecated")
        rounded = list(pool.map(_rounded, matrices))
        # They differ in speed, and in nothing but the last bits.
        for_few, for_many = (
            torch_private.int8_kernels(rounded, engine, pool) for engine in ("fbgemm", "onednn")
        )
    # Without these instructions sums of two products overflow 16 bits unless the inputs have but 7.
    seven_bits = not torch_private.adds_products_in_32_bits()
    for few, many in zip(for_few, for_many, strict=True):
        yield partial(_linear_of_int8, few, many, seven_bits)


def _linear_of_int8(for_few: Int8Kernel, for_many: Int8Kernel, seven_bits: bool, x: Tensor) -> Tensor:
    return torch_private.int8_linear(x, for_few if x.shape[0] <= FEW_ROWS else for_many, seven_bits)


def _rounded(matrix: tuple[Tensor, Tensor | None]) -> tuple[Tensor, Tensor | None]:
    weight, bias = (None if x is None else x.detach() for x in matrix)
    assert weight is not None
    least, most = weight.aminmax(dim=1)
    # A row of zeros must not be divided by 0.
    scale = torch.maximum(-least, most).clamp(min=torch.finfo(weight.dtype).tiny) / 127
    rounded = (weight / scale[:, None]).round_().to(torch.int8)
    return torch_private.int8_weight(rounded, scale), bias
