"""Weights laid out once for translating, in the precision asked for."""

import warnings
from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor, nn

from nmt_cli.errors import UserError
from nmt_cli.model.transformer import Transformer

Precision = Literal["fp32", "fp16", "bf16", "int8"]

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
def pack(model: Transformer, precision: Precision) -> None:
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
        layout = _quantized if precision == "int8" else _laid_out
        for module in list(model.modules()):
            for name, child in module.named_children():
                if isinstance(child, nn.Linear):
                    setattr(module, name, Packed(layout(child.weight, child.bias), child))
        model.packed_output = layout(model.output_matrix, None)


class Packed(nn.Module):
    """Stands in for an `nn.Linear`."""

    def __init__(self, compute: Callable[[Tensor], Tensor], linear: nn.Linear) -> None:
        super().__init__()
        self.compute = compute
        self.in_features, self.out_features = linear.in_features, linear.out_features

    def forward(self, x: Tensor) -> Tensor:
        """[..., inputs] to [..., outputs]."""
        return self.compute(x)


def _laid_out(weight: Tensor, bias: Tensor | None) -> Callable[[Tensor], Tensor]:
    packed = torch.ops.mkldnn._reorder_linear_weight(weight.detach(), TYPICAL_ROWS)

    def compute(x: Tensor) -> Tensor:
        out: Tensor = torch.ops.mkldnn._linear_pointwise(x, packed, bias, "none", [], "")
        return out

    return compute


def _quantized(weight: Tensor, bias: Tensor | None) -> Callable[[Tensor], Tensor]:
    """Weights as int8 with a scale for each output; inputs are rounded to 8 bits at each call."""
    least, most = weight.aminmax(dim=1)
    scale = torch.maximum(-least, most).clamp(min=torch.finfo(weight.dtype).tiny) / 127
    rounded = (weight / scale[:, None]).round_().to(torch.int8)
    zeros = torch.zeros(len(scale), dtype=torch.int64)
    with warnings.catch_warnings():
        # It is the only way to these kernels, so long as there is one.
        warnings.filterwarnings("ignore", message=".*quantized tensor creation functions.*deprecated")
        quantized = torch._make_per_channel_quantized_tensor(rounded, scale.double(), zeros, 0)
    # They differ in speed, and in nothing but the last bits.
    for_few, for_many = (_prepacked(quantized, bias, engine) for engine in ("fbgemm", "onednn"))
    # Without these instructions sums of two products overflow 16 bits unless the inputs have but 7.
    seven_bits = not torch.cpu._is_vnni_supported()

    def compute(x: Tensor) -> Tensor:
        packed = for_few if x.shape[0] <= FEW_ROWS else for_many
        out: Tensor = torch.ops.quantized.linear_dynamic(x, packed, seven_bits)
        return out

    return compute


def _prepacked(quantized: Tensor, bias: Tensor | None, engine: str) -> torch.ScriptObject:
    before, torch.backends.quantized.engine = torch.backends.quantized.engine, engine
    packed: torch.ScriptObject = torch.ops.quantized.linear_prepack(quantized, bias)
    torch.backends.quantized.engine = before
    return packed
