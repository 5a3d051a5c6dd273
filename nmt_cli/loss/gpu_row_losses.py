"""`RowLosses` as a Triton kernel, one program per row. Axes: C tokens of a chunk, V vocabulary entries."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from nmt_cli.loss.plain_loss import IGNORED

# Without it, the kernel for sm_90 read rows of 37,000 entries 2 bytes at a time, and now 16.
UNIT = 64
"""Rows of logits begin at multiples of this many entries. In half precision these are 128 bytes, one read."""

MAX_BLOCK, WARPS = 4096, 8
"""Maximum number of entries that a program holds at a time, and its warps."""


@triton.jit
def _rows_kernel(
    logits, targets, smoothed, nlls, scale, stride,
    ENTRIES: tl.constexpr, SMOOTHING: tl.constexpr, IGNORED: tl.constexpr,
    GRADIENT: tl.constexpr, WIDE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Write the losses of one row of logits. If GRADIENT, overwrite the row by the gradient times `scale`.

    Rows with the target IGNORED get 0. Other targets outside of the vocabulary give NaN. `stride` is the
    distance between rows. Padding up to the next row is read and written too. A mask that ends within a unit
    would split the access. WIDE is the dtype of sums, BLOCK the entries read at a time.
    """
    row = tl.program_id(0).to(tl.int64)
    target = tl.load(targets + row)
    logits += row * stride
    # Read before the reductions. Their barriers keep other warps from overwriting this logit too early.
    is_entry = (target >= 0) & (target < ENTRIES)
    z_target = tl.load(logits + target, mask=is_entry, other=float("nan")).to(WIDE)
    counts = target != IGNORED
    columns = tl.arange(0, BLOCK)
    # An online log-sum-exp, as a row of a large vocabulary does not fit into registers.
    highest = tl.full((), float("-inf"), WIDE)
    exponentials = tl.zeros((), WIDE)
    total = tl.zeros((), WIDE)
    for start in range(0, ENTRIES, BLOCK):
        inside = start + columns < ENTRIES
        z = tl.load(logits + start + columns, mask=start + columns < stride, other=0.0).to(WIDE)
        z = tl.where(inside, z, float("-inf"))
        higher = tl.maximum(highest, tl.max(z, 0))
        exponentials = exponentials * tl.exp(highest - higher) + tl.sum(tl.exp(z - higher), 0)
        total += tl.sum(tl.where(inside, z, 0.0), 0)
        highest = higher
    nll = tl.log(exponentials) + (highest - z_target)
    uniform, peak = tl.full((), SMOOTHING / ENTRIES, WIDE), tl.full((), 1 - SMOOTHING, WIDE)
    smooth = nll + SMOOTHING * (z_target - total / ENTRIES)
    tl.store(smoothed + row, tl.where(counts, smooth, 0.0))
    tl.store(nlls + row, tl.where(counts, nll, 0.0))
    if GRADIENT:
        factor = tl.load(scale).to(WIDE) if scale is not None else tl.full((), 1.0, WIDE)
        for start in range(0, ENTRIES, BLOCK):
            inside = start + columns < stride
            z = tl.load(logits + start + columns, mask=inside, other=0.0).to(WIDE)
            expected = uniform + tl.where(start + columns == target, peak, 0.0)
            gradient = tl.where(counts, (tl.exp(z - highest) / exponentials - expected) * factor, 0.0)
            tl.store(logits + start + columns, gradient, mask=inside)


def rows(
    logits_CV: Tensor,
    targets_C: Tensor,
    losses_2C: Tensor,
    smoothing: float,
    grad_scale: Tensor | None,
    gradient: bool,
) -> None:
    """Compute `RowLosses` on a GPU. A target that is neither in the vocabulary nor IGNORED has NaN losses."""
    tokens, entries = logits_CV.shape
    _rows_kernel[(tokens,)](
        logits_CV,
        targets_C,
        *losses_2C,
        grad_scale,
        logits_CV.stride(0),
        ENTRIES=entries,
        SMOOTHING=smoothing,
        IGNORED=IGNORED,
        GRADIENT=gradient,
        WIDE=tl.float64 if losses_2C.dtype == torch.float64 else tl.float32,
        BLOCK=min(MAX_BLOCK, triton.next_power_of_2(entries)),
        num_warps=WARPS,
    )
