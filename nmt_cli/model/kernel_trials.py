"""Trials of the Triton kernels with a model's own shapes, against PyTorch's operations in float64.

A trial is a pair of functions (`Compute`): the kernel, and its definition in PyTorch. Both compute the same
named results from the same inputs. `disagreement` compares the pair: the error of a kernel is at most twice
that of PyTorch in the same dtype, and two runs of a kernel give the same bits.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from nmt_cli.attention import padded_attention
from nmt_cli.attention.attention_options import Options
from nmt_cli.attention.groups import grouped
from nmt_cli.attention.projections import Heads, parts_of
from nmt_cli.loss.chunked_loss import walk
from nmt_cli.loss.row_losses import RowLosses, plain_rows
from nmt_cli.model.config import ModelConfig
from nmt_cli.model.pointwise import plain_relu_and_dropout
from nmt_cli.ragged import Layout

LENGTHS = (1, 17, 63, 64, 100, 200)
"""Tokens of segments: alone and together in a small tile, in a large one, and in blocks."""

TOKENS = 72
"""Tokens of the other trials. As in training, a multiple of 4, for which Triton compiles other code."""

SEED = 1 << 60
MEAN_SLACK, LARGEST_SLACK = 1e-3, 1e-2
"""Errors that are always allowed, as fractions: of the root mean square, and of the largest number."""


@dataclass(frozen=True, slots=True)
class Use:
    """What the kernels of a model depend on."""

    model: ModelConfig
    dtype: torch.dtype
    """Of matrix products."""

    entries: int
    """Size of the target vocabulary."""

    smoothing: float | None
    """Label smoothing, or None for translation, which has no gradients."""


Results = dict[str, Tensor]
Attend = Callable[..., Tensor]
Compute = Callable[[torch.dtype], Results]
"""A function that computes named results from the same inputs, converted to a dtype."""


def attention(use: Use, device: torch.device) -> Iterator[tuple[Compute, Compute]]:
    """Yield two trials of the attention kernels: causal self-attention, and cross-attention.

    A trial is the pair (kernel, definition in PyTorch). Their results are the output, and in training also
    the gradients of queries, keys and values. Inputs are random, with the heads, dropout and window of
    `use.model`, and segments of `LENGTHS` tokens.
    """
    from nmt_cli.attention import gpu_attention  # Triton may be missing

    heads, training = Heads(use.model.heads, use.model.d_k, use.model.d_v), use.smoothing is not None
    drop = use.model.attention_dropout if training else 0.0
    # None without dropout, as in training. Triton compiles another kernel for a tensor.
    seed = torch.tensor(7, device=device) if drop else None
    keys, tokens = Layout.of(LENGTHS[::-1]), sum(LENGTHS)
    alone = grouped(Layout.of(LENGTHS)).to(device)
    pairs = grouped(Layout.of(LENGTHS), keys).to(device), keys.to(device)

    def by_definition(projections: Sequence[Tensor], heads: Heads, *batch: Any) -> Tensor:
        q_THK, k_SHK, v_SHV = parts_of(projections, heads)
        return padded_attention.attend(q_THK, k_SHK, v_SHV, *batch)

    def compute(attend: Attend, columns: list[int], batch: tuple[Any, ...], dtype: torch.dtype) -> Results:
        shapes = [(tokens, heads.number * width) for width in columns]
        *drawn, d_out = _drawn(device, use.dtype, *shapes, (tokens, heads.number, heads.values))
        projections = [x.to(dtype).requires_grad_(training) for x in drawn]
        out = attend(projections, heads, *batch)
        if not training:
            return {"output": out}
        gradients = parts_of(torch.autograd.grad(out, projections, d_out.to(dtype)), heads)
        names = (f"gradient of {each}" for each in ("queries", "keys", "values"))
        return {"output": out.detach(), **dict(zip(names, gradients, strict=True))}

    causal = Options(True, use.model.window, drop, seed)
    for columns, batch in (
        ([2 * heads.keys + heads.values], (alone, alone, causal)),
        ([heads.keys, heads.keys + heads.values], (*pairs, Options(drop=drop, seed=seed))),
    ):
        kernel, plain = gpu_attention.attend_projected, by_definition
        yield partial(compute, kernel, columns, batch), partial(compute, plain, columns, batch)


def loss(use: Use, device: torch.device) -> Iterator[tuple[Compute, Compute]]:
    """Yield two trials of the kernel for rows of logits. The first target is padding.

    The first trial has the losses of `TOKENS` rows, and the gradient of the logits. The second one has all
    results of the loss of training, in two chunks.
    """
    from nmt_cli.loss import gpu_row_losses

    (logits,) = _drawn(device, use.dtype, (TOKENS, use.entries))
    targets = torch.arange(-1, TOKENS - 1, device=device).clamp(max=use.entries - 1)
    scale = torch.tensor(1.0, device=device)

    def compute(rows: RowLosses, dtype: torch.dtype) -> Results:
        wide = torch.promote_types(dtype, torch.float32)
        stride = -(-use.entries // gpu_row_losses.UNIT) * gpu_row_losses.UNIT
        logits_CV = torch.zeros(TOKENS, stride, dtype=dtype, device=device)[:, : use.entries].copy_(logits)
        losses_2C = torch.empty(2, TOKENS, dtype=wide, device=device)
        rows(logits_CV, targets, losses_2C, use.smoothing or 0.0, scale, True)
        return {"loss": losses_2C, "gradient": logits_CV}

    features, matrix = _drawn(device, use.dtype, (TOKENS, use.model.width), (use.entries, use.model.width))
    matrix = (matrix * use.model.width**-0.5).to(use.dtype)

    def in_chunks(rows: RowLosses, dtype: torch.dtype) -> Results:
        names = "sum of losses", "sum of NLLs", "gradient of features", "gradient of the output matrix"
        results = walk(
            features.to(dtype),
            matrix.to(torch.promote_types(dtype, torch.float32)),
            targets,
            use.smoothing or 0.0,
            scale,
            x_gradient=True,
            weight_gradient=True,
            rows=rows,
            chunk=TOKENS // 2,
            unit=gpu_row_losses.UNIT,
        )
        return dict(zip(names, results, strict=True))

    for function in (compute, in_chunks):
        yield partial(function, gpu_row_losses.rows), partial(function, plain_rows)


def pointwise(use: Use, device: torch.device) -> Iterator[tuple[Compute, Compute]]:
    """Yield two trials: of ReLU in feed-forward layers with its gradients, and of dropout. A trial is the
    pair (kernel, definition in PyTorch)."""
    from nmt_cli.model.pointwise import gpu_relu_and_dropout

    width, inside = use.model.width, use.model.feed_forward

    def of_relu(functions: ModuleType, dtype: torch.dtype) -> Results:
        shapes = *[(TOKENS, inside)] * 2, (TOKENS, width), (inside, width), (inside,)
        d_out, out, *linear = (x.to(dtype) for x in _drawn(device, use.dtype, *shapes))
        d_in, d_bias = functions.relu_backward(d_out, out)
        projected = functions.relu_linear(*linear)
        return {"ReLU": projected, "gradient of ReLU": d_in, "gradient of bias": d_bias}

    def of_dropout(functions: ModuleType, dtype: torch.dtype) -> Results:
        (x,) = _drawn(device, use.dtype, (TOKENS, width))
        embedded = x.to(torch.promote_types(dtype, torch.float32))
        numbers = torch.arange(TOKENS, dtype=torch.int32, device=device)
        seed = torch.tensor(SEED, device=device)
        return {
            name: functions.dropped(value, seed, numbers % 7, numbers // 7, 0.1)
            for name, value in (("dropout", x.to(dtype)), ("dropout of embeddings", embedded))
        }

    yield partial(of_relu, gpu_relu_and_dropout), partial(of_relu, plain_relu_and_dropout)
    yield partial(of_dropout, gpu_relu_and_dropout), partial(of_dropout, plain_relu_and_dropout)


def disagreement(ours: Compute, plain: Compute, dtype: torch.dtype) -> str:
    """Return what is wrong with the results of `ours` in `dtype`, or "" if they agree with `plain`."""
    with torch.enable_grad():
        first, second, theirs, exact = ours(dtype), ours(dtype), plain(dtype), plain(torch.float64)
    problems = []
    for name, right in exact.items():
        mine, usual = (x[name].double() - right for x in (first, theirs))
        square, largest = right.square().mean().sqrt(), right.abs().max()
        # The root mean square shows an error of 1 %, which the largest error of half precision hides.
        wrong = mine.square().mean().sqrt() > 2 * usual.square().mean().sqrt() + MEAN_SLACK * square
        wrong |= mine.abs().max() > 4 * usual.abs().max() + LARGEST_SLACK * largest
        not_finite = ~first[name].isfinite().all()
        varies = (first[name] != second[name]).any()
        problems.append(torch.stack((not_finite, varies, wrong)))
    # One copy to the host.
    for name, (not_finite, varies, wrong) in zip(exact, torch.stack(problems).tolist(), strict=True):
        if not_finite:
            return f"its {name} is not finite"
        if varies or wrong:
            return f"its {name} {'differs between two runs' if varies else 'is wrong'}"
    return ""


def _drawn(device: torch.device, dtype: torch.dtype, *shapes: tuple[int, ...]) -> list[Tensor]:
    """Return tensors of random normal numbers on a device. Do not change the state of global generators."""
    draw = torch.Generator().manual_seed(1)
    return [torch.randn(shape, generator=draw).to(device, dtype) for shape in shapes]


TRIALS: Mapping[str, Callable[[Use, torch.device], Iterator[tuple[Compute, Compute]]]] = {
    "attention": attention,
    "loss": loss,
    "pointwise": pointwise,
}
