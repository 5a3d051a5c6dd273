"""Ragged attention by Triton kernels, without padding: short neighbouring segments share a tile.

A group is one or more neighbouring segments (`groups.py`). `gpu_attention_in_a_tile` computes groups that fit
a tile, `gpu_attention_in_blocks` larger ones. The reference is `plain_attention.py`.

Axes: T query tokens, S key tokens, H heads, K channels of queries and keys, V of values.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import torch
import triton
from torch import Tensor

from nmt_cli.attention import dropout_masks
from nmt_cli.attention import gpu_attention_in_a_tile as in_a_tile
from nmt_cli.attention import gpu_attention_in_blocks as in_blocks
from nmt_cli.attention.attention_options import PLAIN, Options
from nmt_cli.attention.gpu_attention_parts import Indices, Strided
from nmt_cli.attention.groups import ROWS, groups_of
from nmt_cli.attention.projections import Heads
from nmt_cli.ragged import Layout
from nmt_cli.runtime.devices import shared_memory

TILE_WARPS = {64: 4, 128: 8}
"""Warps of a program, by the rows of its tile, which are the maximum rows of a group."""

LARGEST_TILE = 128
LARGEST_BLOCK, BLOCK_WARPS = 64, 4
LARGEST_EXACT = 32
"""Maximum rows of 32-bit tiles and blocks. Without tensor cores, more would not fit registers."""

TILE_BYTES = 16 * 1024
"""Maximum bytes of a tile or block of queries, keys or values, so that the backward programs fit."""

STAGES, STAGED_TILES = 3, 7
"""Blocks of keys in flight, and a limit on the shared memory that they need, in blocks. See the compile table
in `recipes/benchmarks/gpu/README.md`. A GPU with less shared memory gets one stage fewer."""

WARP_BYTES, MAX_WARPS = 128, 8
"""The numbers of warps above are for rows of this many bytes. Wider rows get more, up to the maximum."""

Launch = dict[str, Any]
"""Keyword arguments of one launch that are no tensors."""


class Tiles(NamedTuple):
    """Kernels that compute each of `groups` groups in one tile."""

    groups: int
    options: Launch


class Blocks(NamedTuple):
    """Kernels that compute `groups` groups in blocks. The largest group has `queries` and `keys` blocks."""

    groups: int
    queries: int
    keys: int
    options: Launch


FAR = 1 << 30
"""A distance beyond any key of a segment. Kernels compute in int32, which also holds twice of it."""


def attend_projected(
    projections: Sequence[Tensor], heads: Heads, q: Layout, k: Layout, options: Options = PLAIN
) -> Tensor:
    """Compute attention by fused kernels. Arguments and result are those of `attention.attend_projected`."""
    groups = groups_of(q, k)
    batch = [groups.counts, groups.ranges, q.mask_keys, q.segments, q.positions]
    if q.starts is not k.starts:
        batch += [k.segments, k.positions]
    causal, window, drop, seed, _ = options
    if torch.is_grad_enabled():
        out_THV: Tensor = _FusedAttention.apply(
            heads, len(batch), (causal, window, drop), seed, *batch, *projections
        )
        return out_THV
    return torch.ops.nmt.attend(projections, heads, batch, causal, window, drop, seed)[0]


class _FusedAttention(torch.autograd.Function):
    """The two operators as a differentiable function.

    With `register_autograd` instead, PyTorch's own wrappers took the host 290 of 474 us for both passes.
    """

    @staticmethod
    def forward(
        ctx: Any,
        heads: Heads,
        size: int,
        options: tuple[bool, int, float],
        seed: Tensor | None,
        *tensors: Tensor,
    ) -> Tensor:
        """Return the output. `tensors` are a batch of this size, and the projections."""
        batch, projections = tensors[:size], tensors[size:]
        out_THV, lse_TH = torch.ops.nmt.attend(projections, heads, batch, *options, seed)
        ctx.heads, ctx.size, ctx.options = heads, size, options
        ctx.save_for_backward(lse_TH, seed, *tensors)
        return out_THV

    @staticmethod
    def backward(ctx: Any, *d_outs: Tensor) -> tuple[Tensor | None, ...]:
        lse_TH, seed, *tensors = ctx.saved_tensors
        batch, projections = tensors[: ctx.size], tensors[ctx.size :]
        gradients = torch.ops.nmt.attend_backward(
            d_outs[0], lse_TH, projections, ctx.heads, batch, *ctx.options, seed
        )
        return *[None] * (4 + ctx.size), *gradients


OPTIONS = "bool causal, SymInt window, float drop, Tensor? seed"
ARGUMENTS = f"Tensor[] projections, SymInt[] heads, Tensor[] batch, {OPTIONS}"

# Operators, because the launches depend on the lengths and `torch.compile` must not trace them. `custom_op`
# would check each result for shared memory, which takes the host 13 us per call.
torch.library.define("nmt::attend", f"({ARGUMENTS}) -> (Tensor, Tensor)", tags=torch.Tag.pt2_compliant_tag)
torch.library.define(
    "nmt::attend_backward",
    f"(Tensor d_out_THV, Tensor lse_TH, {ARGUMENTS}) -> Tensor[]",
    tags=torch.Tag.pt2_compliant_tag,
)


@torch.library.impl("nmt::attend", "default")
def _attend(
    projections: Sequence[Tensor],
    heads: Sequence[int],
    batch: Sequence[Tensor],
    causal: bool,
    window: int,
    drop: float,
    seed: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """Return the output [T, H, V], and log2 of the softmax's divisors [T, H], which the backward pass needs.

    heads: the values of `Heads`.
    batch: `Groups.counts`, `Groups.ranges`, and of the queries' layout `mask_keys`, `segments`, `positions`.
        If the keys' layout is another one, its last two follow. It is a list, because an operator takes no
        named tuples. No tensor is in it twice, because `torch.compile` allows none.
    """
    like = projections[0]
    out_THV, lse_TH = _outputs(like, heads)
    parts = _parts([_dense(x) for x in projections], heads)
    indices, out = _indices(*batch), Strided(out_THV, out_THV.stride(0))
    given = {**parts, "out": out, "lse": lse_TH, "indices": indices, "seed": seed}
    tiles, blocks = _launches(batch[0], heads, (causal, window, drop), like)
    # Triton launches on the current device, whichever the tensors are on.
    with torch.cuda.device_of(like):
        for tile in tiles:
            in_a_tile.forward[tile.groups * heads[0],](**given, **tile.options)
        if blocks:
            in_blocks.forward[blocks.groups * heads[0], blocks.queries](**given, **blocks.options)
    return out_THV, lse_TH


@torch.library.impl("nmt::attend_backward", "default")
def _attend_backward(
    d_out_THV: Tensor,
    lse_TH: Tensor,
    projections: Sequence[Tensor],
    heads: Sequence[int],
    batch: Sequence[Tensor],
    causal: bool,
    window: int,
    drop: float,
    seed: Tensor | None,
) -> list[Tensor]:
    """Return the gradient of each of `projections`.

    d_out_THV: the gradient of the output.
    lse_TH: the second result of `_attend`.
    """
    gradients = [x.new_empty(x.shape) for x in projections]
    parts, d_parts = _parts([_dense(x) for x in projections], heads), _parts(gradients, heads)
    d_out = d_out_THV.contiguous()
    given = {**parts, "lse": lse_TH, "d_out": Strided(d_out, d_out.stride(0))}
    given |= {"indices": _indices(*batch), "seed": seed}
    d_queries, d_keys = {"dq": d_parts["q"]}, {"dk": d_parts["k"], "dv": d_parts["v"]}
    tiles, blocks = _launches(batch[0], heads, (causal, window, drop), projections[0])
    with torch.cuda.device_of(lse_TH):
        for tile in tiles:
            in_a_tile.backward[tile.groups * heads[0],](**given, **tile.options, **d_queries, **d_keys)
        if blocks:
            given |= {"delta": torch.empty_like(lse_TH), **blocks.options}
            in_blocks.backward_queries[blocks.groups * heads[0], blocks.queries](**given, **d_queries)
            in_blocks.backward_keys[blocks.groups * heads[0], blocks.keys](**given, **d_keys)
    return gradients


def _indices(_: Tensor, ranges: Tensor, mask_keys: Tensor, *layouts: Tensor) -> Indices:
    """Return the tensors of a batch by name, without its counts."""
    q_segments, q_positions = layouts[:2]
    k_segments, k_positions = layouts[-2:]
    return Indices(ranges, q_segments, k_segments, q_positions, k_positions, mask_keys)


def _parts(projections: Sequence[Tensor], heads: Sequence[int]) -> dict[str, Strided]:
    """Return queries, keys and values by name, as `parts_of` does, without views by head, which take the host
    16 us."""
    number, keys, values = heads
    matrices, parts, column = iter(projections), {}, 0
    matrix = next(matrices)
    for name, width in ("q", keys), ("k", keys), ("v", values):
        if column == matrix.shape[1]:
            matrix, column = next(matrices), 0
        part = matrix.narrow(1, column, number * width) if column else matrix
        parts[name] = Strided(part, matrix.stride(0))
        column += number * width
    return parts


def _launches(
    counts: Tensor, heads: Sequence[int], options: tuple[bool, int, float], like: Tensor
) -> tuple[list[Tiles], Blocks | None]:
    """Return the launches with all arguments that are no tensors, for projections like `like`."""
    return _kept(tuple(counts.tolist()), Heads(*heads), options, like.element_size(), like.device)


@lru_cache(maxsize=64)  # all layers of a kind share the plan of a batch
def _kept(
    counts: tuple[int, ...],
    heads: Heads,
    options: tuple[bool, int, float],
    element_size: int,
    device: torch.device,
) -> tuple[list[Tiles], Blocks | None]:
    shared = constants(heads, Options(*options))
    width = max(shared["PADDED_K"], shared["PADDED_V"])
    tiles, blocks = plan(counts, width, element_size, shared_memory(device))
    tiles = [tile._replace(options=shared | tile.options) for tile in tiles]
    return tiles, blocks and blocks._replace(options=shared | blocks.options)


def plan(
    counts: Sequence[int], width: int, element_size: int, shared: int
) -> tuple[list[Tiles], Blocks | None]:
    """Return the launches for groups that fit a tile, and the launch for the others, which are computed in
    blocks, or None without any.

    counts: the numbers in `Groups.counts`.
    width: channels of a head, as a power of two.
    element_size: bytes of a channel.
    shared: bytes of shared memory that a program may use.
    """
    *borders, queries, keys = counts
    rows = TILE_BYTES // (width * element_size)
    if element_size > 2:
        rows = min(rows, LARGEST_EXACT)
    more_warps = max(1, width * element_size // WARP_BYTES)
    fitting = [tile for tile in ROWS if tile <= min(rows, LARGEST_TILE)]
    tiles: list[Tiles] = []
    for number, tile in enumerate(fitting):
        first, end = borders[2 * number : 2 * number + 2]
        warps = min(MAX_WARPS, TILE_WARPS[tile] * more_warps)
        if first < end:
            tiles.append(Tiles(end - first, {"first": first, "TILE": tile, "num_warps": warps}))
    first, end = borders[2 * len(fitting)], borders[-1]
    if first == end:
        return tiles, None
    block, warps = min(rows, LARGEST_BLOCK), min(MAX_WARPS, BLOCK_WARPS * more_warps)
    # Heads of 128 channels would need 108,544 bytes in the backward pass. RTX 30, 40 and 50 have 101,376.
    stages = STAGES if STAGED_TILES * block * width * element_size <= shared else STAGES - 1
    options = {"first": first, "BLOCK": block, "num_warps": warps, "num_stages": stages}
    return tiles, Blocks(end - first, triton.cdiv(queries, block), triton.cdiv(keys, block), options)


def constants(heads: Heads, options: Options) -> Launch:
    """Return the arguments that all kernels share and that are no tensors, by name."""
    return {
        "heads": heads.number,
        "back": options.back if options.window else FAR,
        "ahead": options.ahead if options.window or options.causal else FAR,
        "scale": heads.keys**-0.5,
        "threshold": dropout_masks.threshold(options.drop),
        "amplified": 1 / (1 - options.drop),
        "K": heads.keys,
        "V": heads.values,
        "PADDED_K": _padded(heads.keys),
        "PADDED_V": _padded(heads.values),
        "BANDED": options.causal or options.window > 0,
        "DROPOUT": options.drop > 0,
        "enable_fp_fusion": True,
    }


def _padded(width: int) -> int:
    """Return the columns of a tile: a power of two from `width` on, and at least 16 for `tl.dot`."""
    return max(16, triton.next_power_of_2(width))


def _dense(x: Tensor) -> Tensor:
    """Return `x` itself if the values of its last axis are adjacent in memory, else a copy."""
    return x if x.stride(-1) == 1 else x.contiguous()


def _outputs(like: Tensor, heads: Sequence[int]) -> tuple[Tensor, Tensor]:
    shape = like.shape[0], heads[0]
    return like.new_empty((*shape, heads[2])), like.new_empty(shape, dtype=torch.float32)


@torch.library.register_fake("nmt::attend")
def _(projections: Sequence[Tensor], heads: Sequence[int], *rest: Any) -> tuple[Tensor, Tensor]:
    return _outputs(projections[0], heads)


@torch.library.register_fake("nmt::attend_backward")
def _(d_out_THV: Tensor, lse_TH: Tensor, projections: Sequence[Tensor], *rest: Any) -> list[Tensor]:
    return [x.new_empty(x.shape) for x in projections]
