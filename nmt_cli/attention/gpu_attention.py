"""Ragged attention by Triton kernels, without padding: short neighbouring segments share a tile.

A group is one or more neighbouring segments (`groups.py`). `gpu_attention_in_a_tile` computes groups that fit
a tile, `gpu_attention_in_blocks` larger ones. The reference is `plain_attention.py`.

Axes: T query tokens, S key tokens, H heads, K channels of queries and keys, V of values.
"""

from collections.abc import Sequence
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
from nmt_cli.attention.projections import Heads, parts_of
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

Launch = dict[str, int]
"""Keyword arguments of one launch: its groups, the size of tiles or blocks, and the warps."""


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
    """Compute attention by fused kernels. Arguments and result are those of `attend.attend_projected`."""
    groups = groups_of(q, k)
    indices = Indices(groups.ranges, q.segments, k.segments, q.positions, k.positions, q.mask_keys)
    out_THV: Tensor = _attend(list(projections), heads, [*indices, groups.counts], *options[:4])[0]
    return out_THV


# A custom operator, because the launches depend on the lengths and `torch.compile` must not trace them.
@torch.library.custom_op("nmt::attend", mutates_args=())
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
    batch: the tensors of `Indices`, then `Groups.counts`. They are lists, because a custom operator takes
        no named tuples.
    """
    q_THK, k_SHK, v_SHV = parts_of(map(_dense, projections), Heads(*heads))
    out_THV, lse_TH = _outputs(q_THK, heads)
    *indices, counts = batch
    arguments = _arguments(q_THK, k_SHK, v_SHV, Indices(*indices), Options(causal, window, drop, seed))
    arguments |= {"out": _strided(out_THV), "lse": lse_TH}
    tiles, blocks = _plan(counts, q_THK, v_SHV)
    # Triton launches on the current device, whichever the tensors are on.
    with torch.cuda.device_of(q_THK):
        for tile in tiles:
            in_a_tile.forward[tile.groups * heads[0],](**arguments, **tile.options)
        if blocks:
            in_blocks.forward[blocks.groups * heads[0], blocks.queries](**arguments, **blocks.options)
    return out_THV, lse_TH


@torch.library.custom_op("nmt::attend_backward", mutates_args=())
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
    q_THK, k_SHK, v_SHV = parts_of(map(_dense, projections), Heads(*heads))
    dq_THK, dk_SHK, dv_SHV = parts_of(gradients, Heads(*heads))
    *indices, counts = batch
    arguments = _arguments(q_THK, k_SHK, v_SHV, Indices(*indices), Options(causal, window, drop, seed))
    arguments |= {"lse": lse_TH, "d_out": _strided(_dense(d_out_THV))}
    d_queries, d_keys = {"dq": _strided(dq_THK)}, {"dk": _strided(dk_SHK), "dv": _strided(dv_SHV)}
    tiles, blocks = _plan(counts, q_THK, v_SHV)
    with torch.cuda.device_of(q_THK):
        for tile in tiles:
            in_a_tile.backward[tile.groups * heads[0],](**arguments, **tile.options, **d_queries, **d_keys)
        if blocks:
            arguments |= {"delta": torch.empty_like(lse_TH), **blocks.options}
            in_blocks.backward_queries[blocks.groups * heads[0], blocks.queries](**arguments, **d_queries)
            in_blocks.backward_keys[blocks.groups * heads[0], blocks.keys](**arguments, **d_keys)
    return gradients


def _plan(counts: Tensor, q_THK: Tensor, v_SHV: Tensor) -> tuple[list[Tiles], Blocks | None]:
    """Return the launches for queries and values like these, on their device. See `plan`."""
    width = _padded(max(q_THK.shape[2], v_SHV.shape[2]))
    return plan(counts, width, q_THK.element_size(), shared_memory(q_THK.device))


def plan(counts: Tensor, width: int, element_size: int, shared: int) -> tuple[list[Tiles], Blocks | None]:
    """Return the launches for groups that fit a tile, and the launch for the others, which are computed in
    blocks, or None without any.

    counts: `Groups.counts`, on the host.
    width: channels of a head, as a power of two.
    element_size: bytes of a channel.
    shared: bytes of shared memory that a program may use.
    """
    *borders, queries, keys = counts.tolist()
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


def _arguments(
    q_THK: Tensor, k_SHK: Tensor, v_SHV: Tensor, indices: Indices, options: Options
) -> dict[str, Any]:
    """Return the arguments that all kernels share, by name."""
    channels, values = q_THK.shape[2], v_SHV.shape[2]
    return {
        "q": _strided(q_THK),
        "k": _strided(k_SHK),
        "v": _strided(v_SHV),
        "indices": indices,
        "seed": options.seed,
        "heads": q_THK.shape[1],
        "back": options.back if options.window else FAR,
        "ahead": options.ahead if options.window or options.causal else FAR,
        "scale": channels**-0.5,
        "threshold": dropout_masks.threshold(options.drop),
        "amplified": 1 / (1 - options.drop),
        "K": channels,
        "V": values,
        "PADDED_K": _padded(channels),
        "PADDED_V": _padded(values),
        "BANDED": options.causal or options.window > 0,
        "DROPOUT": options.drop > 0,
        "enable_fp_fusion": True,
    }


def _strided(x_THC: Tensor) -> Strided:
    """Return a tensor with its strides. Its channels must be adjacent in memory, as after `_dense`."""
    return Strided(x_THC, x_THC.stride(0), x_THC.stride(1))


def _padded(width: int) -> int:
    """Return the columns of a tile: a power of two from `width` on, and at least 16 for `tl.dot`."""
    return max(16, triton.next_power_of_2(width))


def _dense(x: Tensor) -> Tensor:
    """Return `x` itself if the values of its last axis are adjacent in memory, else a copy."""
    return x if x.stride(-1) == 1 else x.contiguous()


def _outputs(like: Tensor, heads: Sequence[int]) -> tuple[Tensor, Tensor]:
    shape = like.shape[0], heads[0]
    return like.new_empty((*shape, heads[2])), like.new_empty(shape, dtype=torch.float32)


@_attend.register_fake
def _(projections: Sequence[Tensor], heads: Sequence[int], *rest: Any) -> tuple[Tensor, Tensor]:
    return _outputs(projections[0], heads)


@_attend_backward.register_fake
def _(d_out_THV: Tensor, lse_TH: Tensor, projections: Sequence[Tensor], *rest: Any) -> list[Tensor]:
    return [x.new_empty(x.shape) for x in projections]


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    projections, ctx.heads, batch, *ctx.options, seed = inputs
    ctx.save_for_backward(output[1], seed, *batch, *projections)
    ctx.mark_non_differentiable(output[1])
    # Otherwise PyTorch would make gradients of zeros for the logarithms.
    ctx.set_materialize_grads(False)


def _differentiate(ctx: Any, d_out_THV: Tensor, _: None) -> tuple[Any, ...]:
    lse_TH, seed, *tensors = ctx.saved_tensors
    count = len(Indices._fields) + 1  # and the counts
    batch, projections = tensors[:count], tensors[count:]
    gradients = _attend_backward(d_out_THV, lse_TH, projections, ctx.heads, batch, *ctx.options, seed)
    return gradients, None, [None] * count, None, None, None, None


_attend.register_autograd(_differentiate, setup_context=_save)
