"""Weights laid out once for translating, in the precision asked for."""

import warnings
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import chain, starmap
from typing import Literal

import torch
from torch import Tensor, nn

from nmt_cli.errors import UserError
from nmt_cli.machine.own_threads import set_own_threads
from nmt_cli.model.transformer import Transformer

Precision = Literal["fp32", "fp16", "bf16", "int8"]
Compute = Callable[[Tensor], Tensor]
Kernel = torch.ScriptObject

TYPICAL_ROWS = 256
"""The layout is best for about so many rows, and good for any number."""


def precisions(device: torch.device) -> list[Precision]:
    """What a device can do."""
    if device.type == "cuda":
        return ["fp32", "fp16", "bf16"] if torch.cuda.is_bf16_supported() else ["fp32", "fp16"]
    found: list[Precision] = ["fp32"]
    if torch.ops.mkldnn._is_mkldnn_bf16_supported():
        found.append("bf16")
    if "x86" in torch.backends.quantized.supported_engines:
        found.append("int8")
    return found


FEW_ROWS = 64
"""Up to so many, 8-bit kernels that waste no time on single sentences; others are faster above."""


@torch.no_grad()
def pack(model: Transformer, precision: Precision, threads: int = 1) -> None:
    """Make `model` ready to translate on the device where it is; it can't be trained or saved any more."""
    device = model.output_matrix.device
    if precision not in (possible := precisions(device)):
        where = f"this {device.type.upper() if device.type == 'cpu' else 'GPU'}"
        raise UserError(f"{where} can't compute in {precision}; choose --precision {' or '.join(possible)}.")
    if precision == "int8" and "bf16" in possible:
        model.cache_dtype = torch.bfloat16  # half the bytes to read at each step, and no less exact than int8
    if precision in ("fp16", "bf16"):
        model.to(torch.float16 if precision == "fp16" else torch.bfloat16)
    if device.type == "cpu" and torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        named = ((module, *child) for module in model.modules() for child in module.named_children())
        places = [(module, name) for module, name, child in named if isinstance(child, nn.Linear)]
        linears = (getattr(*place) for place in places)
        matrices = chain(((each.weight, each.bias) for each in linears), [(model.output_matrix, None)])
        packed = _quantized(matrices, threads) if precision == "int8" else starmap(_laid_out, matrices)
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


def _laid_out(weight: Tensor, bias: Tensor | None) -> Compute:
    packed = torch.ops.mkldnn._reorder_linear_weight(weight.detach(), TYPICAL_ROWS)

    def compute(x: Tensor) -> Tensor:
        out: Tensor = torch.ops.mkldnn._linear_pointwise(x, packed, bias, "none", [], "")
        return out

    return compute


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
        for_few, for_many = (_prepacked(rounded, engine, pool) for engine in ("fbgemm", "onednn"))
    # Without these instructions sums of two products overflow 16 bits unless the inputs have but 7.
    seven_bits = not torch.cpu._is_vnni_supported()
    for few, many in zip(for_few, for_many, strict=True):
        yield partial(_linear_of_int8, few, many, seven_bits)


def _linear_of_int8(for_few: Kernel, for_many: Kernel, seven_bits: bool, x: Tensor) -> Tensor:
    packed = for_few if x.shape[0] <= FEW_ROWS else for_many
    out: Tensor = torch.ops.quantized.linear_dynamic(x, packed, seven_bits)
    return out


def _rounded(matrix: tuple[Tensor, Tensor | None]) -> tuple[Tensor, Tensor | None]:
    weight, bias = (None if x is None else x.detach() for x in matrix)
    assert weight is not None
    least, most = weight.aminmax(dim=1)
    scale = torch.maximum(-least, most).clamp(min=torch.finfo(weight.dtype).tiny) / 127
    rounded = (weight / scale[:, None]).round_().to(torch.int8)
    zeros = torch.zeros(len(scale), dtype=torch.int64)
    return torch._make_per_channel_quantized_tensor(rounded, scale.double(), zeros, 0), bias


def _prepacked(
    rounded: Iterable[tuple[Tensor, Tensor | None]], engine: str, pool: ThreadPoolExecutor
) -> list[Kernel]:
    before, torch.backends.quantized.engine = torch.backends.quantized.engine, engine  # of all threads
    packed: list[Kernel] = list(pool.map(lambda each: torch.ops.quantized.linear_prepack(*each), rounded))
    torch.backends.quantized.engine = before
    return packed
