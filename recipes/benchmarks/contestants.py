"""Ways to compute attention over a ragged batch.

T query tokens, S key tokens, H heads, K channels, B segments, M queries and N keys of the longest.
"""

import importlib
import inspect
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

from nmt_cli.attention import attention
from nmt_cli.attention.attention_options import Options
from nmt_cli.attention.projections import Heads
from nmt_cli.ragged import Layout

MULTIPLE = 8
"""Padded lengths are rounded up to this, which PyTorch's kernels prefer."""

Attend = Callable[[Tensor, Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Problem:
    """Queries, keys, values, and the gradient of the output."""

    q_THK: Tensor
    k_SHK: Tensor
    v_SHK: Tensor
    d_out_THK: Tensor
    q: Layout
    k: Layout
    causal: bool


@dataclass(frozen=True)
class Contestant:
    """One way to compute attention, with inputs in its own form."""

    attend: Attend
    inputs: tuple[Tensor, Tensor, Tensor]
    d_out: Tensor
    ragged: Callable[[Tensor, Layout], Tensor]
    """Converts from its form to the ragged one."""
    prepare: Callable[[], object] | None = None
    """Prepares a batch. It is timed separately."""

    def forward(self) -> None:
        """Compute the output only."""
        with torch.no_grad():
            self.attend(*self.inputs)

    def results(self) -> tuple[Tensor, ...]:
        """Return the output, and the gradients of queries, keys and values."""
        out = self.attend(*self.inputs)
        return out, *torch.autograd.grad(out, self.inputs, self.d_out)

    def difference(self, other: "Contestant", problem: Problem) -> float:
        """Return the largest difference in any result, relative to the result's largest number."""
        layouts = (problem.q, problem.q, problem.k, problem.k)
        results = zip(self.results(), other.results(), layouts, strict=True)
        shares = []
        for mine, theirs, layout in results:
            here, there = self.ragged(mine, layout).float(), other.ragged(theirs, layout).float()
            shares.append(((here - there).abs().max() / there.abs().max()).item())
        return max(shares)


def ours(problem: Problem) -> Contestant:
    """Return the attention of the model."""
    heads = Heads(problem.q_THK.shape[1], problem.q_THK.shape[2], problem.v_SHK.shape[2])

    def attend(*inputs: Tensor) -> Tensor:
        projections = [x.flatten(1) for x in inputs]
        return attention.attend_projected(projections, heads, problem.q, problem.k, Options(problem.causal))

    return _on_ragged(problem, attend)


def padded(problem: Problem) -> Contestant:
    """Return PyTorch's kernel. Include the time to pad the inputs and unpad the output."""
    attend = _padded_attend(problem)
    q, k = Padding(problem.q), Padding(problem.k)

    def through_padding(q_THK: Tensor, k_SHK: Tensor, v_SHK: Tensor) -> Tensor:
        return q.leave(attend(q.enter(q_THK), k.enter(k_SHK), k.enter(v_SHK)))

    return _on_ragged(problem, through_padding)


def padded_already(problem: Problem) -> Contestant:
    """Return PyTorch's kernel on padded inputs, without the time to pad them."""
    q, k = Padding(problem.q), Padding(problem.k)
    inputs = q.enter(problem.q_THK), k.enter(problem.k_SHK), k.enter(problem.v_SHK)
    d_out_BHMK = q.enter(problem.d_out_THK)
    return Contestant(
        _padded_attend(problem), _leaves(*inputs), d_out_BHMK, lambda x, layout: Padding(layout).leave(x)
    )


def varlen(problem: Problem) -> Contestant:
    """Return the FlashAttention of PyTorch."""
    module: Any = importlib.import_module("torch.nn.attention.varlen")
    windows = "window_size" in inspect.signature(module.varlen_attn).parameters
    causal: dict[str, Any] = {"window_size": (-1, 0 if problem.causal else -1)} if windows else {}
    if problem.causal and not windows:
        causal = {"is_causal": True}
    return _varlen(problem, module.varlen_attn, causal)


def flash_attention(problem: Problem) -> Contestant:
    """Return the flash-attn package."""
    module: Any = importlib.import_module("flash_attn")
    return _varlen(problem, module.flash_attn_varlen_func, {"causal": problem.causal})


def _varlen(problem: Problem, attend: Callable[..., Tensor], options: dict[str, Any]) -> Contestant:
    layouts = (problem.q.starts, problem.k.starts, problem.q.longest, problem.k.longest)
    return _on_ragged(problem, lambda q, k, v: attend(q, k, v, *layouts, **options))


def flex(problem: Problem) -> Contestant:
    """Return FlexAttention over all tokens as one sequence, compiled for the shapes of `problem`."""
    torch.compiler.reset()
    q_segments, k_segments, causal = problem.q.segments, problem.k.segments, problem.causal

    def visible(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        same = q_segments[query] == k_segments[key]
        return same & (query >= key) if causal else same

    create: Any = create_block_mask
    kernel: Any = flex_attention
    if problem.q_THK.is_cuda:
        create, kernel = (torch.compile(function, dynamic=False) for function in (create, kernel))
    sizes = (len(q_segments), len(k_segments))
    make_mask = partial(create, visible, None, None, *sizes, device=str(q_segments.device))
    mask = make_mask()

    def attend(q_THK: Tensor, k_SHK: Tensor, v_SHK: Tensor) -> Tensor:
        q, k, v = (x.transpose(0, 1)[None] for x in (q_THK, k_SHK, v_SHK))
        out_1HTK: Tensor = kernel(q, k, v, block_mask=mask)
        return out_1HTK[0].transpose(0, 1)

    return replace(_on_ragged(problem, attend), prepare=make_mask)


class Padding:
    """Convert ragged tokens to [B, H, M, K] and back with PyTorch's operations."""

    def __init__(self, layout: Layout) -> None:
        self.segments, self.longest = len(layout.lengths), -(-layout.longest // MULTIPLE) * MULTIPLE
        self.rows_T = layout.segments.long() * self.longest + layout.positions

    def enter(self, x_THK: Tensor) -> Tensor:
        """Pad each segment with zeros."""
        flat = x_THK.new_zeros((self.segments * self.longest, *x_THK.shape[1:]))
        flat = flat.index_copy(0, self.rows_T, x_THK)
        return flat.view(self.segments, self.longest, *x_THK.shape[1:]).transpose(1, 2)

    def leave(self, x_BHMK: Tensor) -> Tensor:
        """Remove the padding."""
        flat = x_BHMK.transpose(1, 2).flatten(0, 1)
        out_THK: Tensor = _Taken.apply(flat, self.rows_T)  # type: ignore[no-untyped-call]  # torch's
        return out_THK

    def real(self) -> Tensor:
        """Return a mask of the tokens, [B, M]."""
        real = torch.zeros(self.segments * self.longest, dtype=torch.bool, device=self.rows_T.device)
        real[self.rows_T] = True
        return real.view(self.segments, self.longest)


class _Taken(torch.autograd.Function):
    """Take rows of x, none twice, so that the gradient needs no sum as in `index_select`."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, rows: Tensor) -> Tensor:
        ctx.save_for_backward(rows)
        ctx.size = len(x)
        return x.index_select(0, rows)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        (rows,) = ctx.saved_tensors
        return grads[0].new_zeros((ctx.size, *grads[0].shape[1:])).index_copy_(0, rows, grads[0]), None


def _padded_attend(problem: Problem) -> Attend:
    """Return attention on [B, H, M, K]. A causal mask hides the padding from all real queries."""
    if problem.causal:
        return lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True)
    mask_B11N = Padding(problem.k).real()[:, None, None]
    return lambda q, k, v: F.scaled_dot_product_attention(q, k, v, attn_mask=mask_B11N)


def _on_ragged(problem: Problem, attend: Attend) -> Contestant:
    inputs = _leaves(problem.q_THK, problem.k_SHK, problem.v_SHK)
    return Contestant(attend, inputs, problem.d_out_THK, lambda x, layout: x)


def _leaves(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return tuple(x.detach().clone().requires_grad_() for x in (q, k, v))  # type: ignore[return-value]  # three
