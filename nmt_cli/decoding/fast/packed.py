"""Prepare a model for translating: pack its weights in the chosen precision."""

from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from nmt_cli.decoding.fast.few_rows import FewRows
from nmt_cli.decoding.fast.int8 import POINTWISE, in_bytes
from nmt_cli.errors import UserError
from nmt_cli.model.layers import Residual
from nmt_cli.model.transformer import Transformer
from nmt_cli.runtime.devices import Precision, is_gpu, lays_out_weights, translating_precisions
from nmt_cli.runtime.kernels import torch_private
from nmt_cli.runtime.kernels.loading import compiled_kernels
from nmt_cli.runtime.kernels.torch_private import Compute

TYPICAL_ROWS = 256
"""The layout is fastest for about this number of rows, and fast for others."""


@torch.no_grad()
def pack(model: Transformer, precision: Precision, threads: int = 1) -> None:
    """Prepare `model` for translating on its device, in place. `model` can't be trained or saved afterwards.

    "fp16" and "bf16" convert all weights. "int8" rounds matrices, in `threads` threads, and caches keys and
    values in bf16 if the CPU can. Raise `UserError` if the device does not support `precision`.
    """
    torch_private.keep_few_kernels()
    model.requires_grad_(False)  # views of parameters with gradients are slower
    device = model.device
    if precision not in (possible := translating_precisions(device)):
        where = "this GPU" if is_gpu(device) else "this CPU"
        raise UserError(f"{where} can't compute in {precision}. Choose --precision {' or '.join(possible)}.")
    if not is_gpu(device):
        _copy_unpacked(model)
    if precision == "int8" and "bf16" in possible:
        model.cache_dtype = torch.bfloat16  # half the bytes to read in each step, and as exact as int8
    if precision in ("fp16", "bf16"):
        model.to(torch.float16 if precision == "fp16" else torch.bfloat16)
    if precision == "int8" or lays_out_weights(device):
        named = ((module, *child) for module in model.modules() for child in module.named_children())
        owners = [(module, name) for module, name, child in named if isinstance(child, nn.Linear)]
        linears = (getattr(*owner) for owner in owners)
        matrices = chain(
            ((linear.weight, linear.bias) for linear in linears), [(model.output_matrix, model.output_bias)]
        )
        laid_out = (torch_private.laid_out(*matrix, TYPICAL_ROWS) for matrix in matrices)
        packed: Iterator[Compute] = in_bytes(matrices, threads) if precision == "int8" else laid_out
        for owner in owners:  # lazily, so that each matrix frees memory for the next
            setattr(*owner, Packed(next(packed)))
        model.packed_output = next(packed)
    if (
        not is_gpu(device)
        and model.output_matrix.dtype == torch.float32
        and (kernels := compiled_kernels(POINTWISE))
    ):
        model.few_rows = FewRows.of(model)
        if model.config.norm_kind == "layer":  # the kernels know no other norm
            _compile_norms(model, kernels)


def _copy_unpacked(model: Transformer) -> None:
    """Copy the parameters that are not weights of linear layers, so that no view of the file stays."""
    laid_out = {id(module.weight) for module in model.modules() if isinstance(module, nn.Linear)}
    for parameter in model.parameters():
        if id(parameter) not in laid_out:
            parameter.data = parameter.data.clone()


class Packed(nn.Module):
    """A replacement of `nn.Linear` with packed weights."""

    def __init__(self, compute: Compute) -> None:
        super().__init__()
        self.compute = compute

    def __call__(self, x: Tensor) -> Tensor:
        """Map [..., inputs] to [..., outputs]. Skip PyTorch's hooks, which cost time in every product."""
        return self.compute(x)


class PackedResidual(nn.Module):
    """A replacement of `Residual` in float32 on a CPU. One compiled pass in one thread does norm and sum."""

    def __init__(self, residual: Residual, kernels: ModuleType) -> None:
        super().__init__()
        self.kernels, self.post = kernels, residual.post
        self.norm = _parts(residual.norm)

    def __call__(self, x: Tensor, sublayer: Callable[[Tensor], Tensor], layout: object = None) -> Tensor:
        """Return [T, D]: `x` plus the output of `sublayer`, with a norm after both or before `sublayer`. Only
        training uses `layout`."""
        if self.post:
            y = sublayer(x)
            self.kernels.normed_sum(x.numpy(), y.numpy(), *self.norm)
            return y
        return sublayer(_normed(self.kernels, self.norm, x)).add_(x)


def _compile_norms(model: Transformer, kernels: ModuleType) -> None:
    """Replace all residuals of `model` by `PackedResidual`, and let `kernels` compute the last norms."""
    for module in [*model.modules()]:
        for name, child in [*module.named_children()]:
            if isinstance(child, Residual):
                setattr(module, name, PackedResidual(child, kernels))
            elif isinstance(child, nn.LayerNorm) and module is model:
                child.forward = partial(_normed, kernels, _parts(child))  # type: ignore[method-assign]


def _parts(norm: Any) -> tuple[object, ...]:
    """Return weight, bias and epsilon of an `nn.LayerNorm`."""
    return norm.weight.detach().numpy(), norm.bias.detach().numpy(), norm.eps


def _normed(kernels: ModuleType, norm: tuple[object, ...], x: Tensor) -> Tensor:
    out = torch.empty_like(x)
    kernels.normed(x.numpy(), out.numpy(), *norm)
    return out
