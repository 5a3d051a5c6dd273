"""Choose the implementation of attention.

It is the only module of the room that asks which device it is on.
"""

from collections.abc import Sequence
from types import ModuleType

import torch
from torch import Tensor

from nmt_cli.attention import padded
from nmt_cli.attention.cached import Masked, Paths, Rows, Seen, attend_segments, kernels
from nmt_cli.attention.options import PLAIN, Options
from nmt_cli.attention.projections import Heads, parts_of
from nmt_cli.ragged import Layout

WIDEST = {2: 512, 4: 256}
"""The most channels a head may have in the fused kernel, by the bytes of a number."""

PART = {"cpu": 16}
"""Sentences whose attention is computed at once, over as much as the longest of them needs: few enough for
their keys and values to stay near the processor. All of them where no number is given, and in training."""


LONGEST_WALKED = 256
"""Tokens of the longest segment that the compiled kernel takes: matrix products are faster beyond."""

FEW_ROWS = 64
"""Of so many one thread computes attention in less time than others need to begin."""


def attend(
    q_THK: Tensor,
    k_SHK: Tensor,
    v_SHV: Tensor,
    q: Layout,
    k: Layout,
    options: Options = PLAIN,
) -> Tensor:
    """Attend within each segment of a ragged batch; no query sees another segment's keys.

    T query tokens, S key tokens, H heads, K channels of queries and keys, V of values. Returns [T, H, V] in
    the dtype of `q_THK`; a query whose segment has no keys gets zeros. `causal` hides the keys behind it, and
    `window` all but the `window` keys around it (0: none); both need one layout for queries and keys.
    `drop` is the dropout of the probabilities; its mask follows from `seed`, one int64 on the device.
    """
    if len(q.starts) != len(k.starts):
        raise ValueError(f"q holds {len(q.starts) - 1} segments, but k holds {len(k.starts) - 1}")
    if (options.causal or options.window) and q.starts is not k.starts:
        raise ValueError("causal attention and windows need one layout for queries and keys")
    if options.drop and options.seed is None:
        raise ValueError("dropout needs a seed")
    if implementation(q_THK.device, q_THK.shape[2], v_SHV.shape[2], q_THK.dtype) == "fused":
        from nmt_cli.attention import fused  # Triton is absent on machines without a GPU

        return fused.attend(q_THK, k_SHK, v_SHV, q, k, options)
    part = PART.get(q_THK.device.type, len(q.lengths))
    if part >= len(q.lengths) or options.drop or torch.is_grad_enabled():
        return padded.attend(q_THK, k_SHK, v_SHV, q, k, options)
    each = [
        padded.attend(q_THK[mine], k_SHK[theirs], v_SHV[theirs], some, others, options)
        for (mine, some), (theirs, others) in zip(q.parts(part), k.parts(part), strict=True)
    ]
    return torch.cat(each)


def attend_projected(
    projections: Sequence[Tensor],
    heads: Heads,
    q: Layout,
    k: Layout,
    options: Options = PLAIN,
) -> Tensor:
    """`attend` to what `parts_of` finds in the projections, whose gradients come whole: nobody has to put
    them together.

    Without gradients, one thread of a CPU computes each segment to the same bits whatever the others are.
    """
    used_later = torch.is_grad_enabled() or torch.compiler.is_compiling()
    plain = len(projections) == 1 and not (any(options[:3]) or used_later)
    tokens_TC = projections[0]
    if (
        plain
        and tokens_TC.dtype == torch.float32
        and (compiled := _compiled(tokens_TC.device, len(tokens_TC)))
    ):
        if q.longest <= LONGEST_WALKED:
            return attend_segments(tokens_TC, heads, q, compiled)
        if len(q.lengths) > 1:
            return torch.cat([attend_projected([tokens_TC[t]], heads, one, one) for t, one in q.parts(1)])
    q_THK, k_SHK, v_SHV = parts_of(projections, heads)
    if implementation(q_THK.device, heads.keys, heads.values, q_THK.dtype) == "fused":
        from nmt_cli.attention import fused

        return fused.attend_projected(projections, heads, q, k, options)
    return attend(q_THK, k_SHK, v_SHV, q, k, options)


def implementation(device: torch.device, key_width: int, value_width: int, dtype: torch.dtype) -> str:
    """Who computes attention with heads of these widths: "fused" or "padded"; whoever trains says which."""
    widest = WIDEST.get(dtype.itemsize, 0)
    fits = max(key_width, value_width) <= widest and not (key_width % 8 or value_width % 8)
    return "fused" if device.type == "cuda" and fits else "padded"


def seen_by(rows: Rows, seen_BNM: Tensor, dtype: torch.dtype, widths: tuple[int, int]) -> Seen:
    """What each of `rows`, of `dtype`, sees of what is kept from step to step: the first M keys at most.

    N may be 1 here, where all places of a sentence see the same. `widths` are those of a head's keys and
    values.
    """
    device = seen_BNM.device
    if rows.full and implementation(device, *widths, dtype) == "fused":
        from nmt_cli.attention.one_step import fused

        return fused.Tiled.of(rows, seen_BNM)
    if compiled := follower(rows, dtype):
        return Paths.of(rows, seen_BNM, compiled)
    return Masked.of(rows, seen_BNM, dtype, PART.get(device.type, 0))


def follower(rows: Rows, dtype: torch.dtype) -> ModuleType | None:
    """The kernels that follow the paths of `rows`, of `dtype`, where they are to."""
    fits = dtype in (torch.float32, torch.bfloat16)
    return _compiled(rows.from_places.device, len(rows.from_places)) if fits else None


def attend_newest(
    projected_RC: Tensor, heads: Heads, nodes_RH: Tensor, keys_BHMK: Tensor, values_BHMV: Tensor, seen: Seen
) -> Tensor:
    """[R, H x V]: what each of R rows gets of the nodes that it has `seen`, itself among them.

    Its key and value are kept at its node of [B x H x M] before; rows behind those of `nodes_RH` have none.
    """
    if isinstance(seen, Paths):
        return seen.attend_newest(projected_RC, nodes_RH, keys_BHMK, values_BHMV)
    query_RHK, key_RHK, value_RHV = parts_of([projected_RC], heads)
    for new_RHC, kept_BHMC in ((key_RHK, keys_BHMK), (value_RHV, values_BHMV)):
        rows = new_RHC[: len(nodes_RH)].to(kept_BHMC.dtype).flatten(0, 1)
        kept_BHMC.view(-1, kept_BHMC.shape[3]).index_copy_(0, nodes_RH.flatten(), rows)
    return seen.attend(query_RHK, keys_BHMK, values_BHMV)


def one_thread_is_best(device: torch.device, rows: int) -> bool:
    """Return whether to compute `rows` rows in one thread of a CPU: there is no other, or they are few."""
    return device.type == "cpu" and (rows <= FEW_ROWS or torch.get_num_threads() == 1)


def _compiled(device: torch.device, rows: int) -> ModuleType | None:
    """Return the compiled kernels if they suit `rows` rows."""
    return kernels() if one_thread_is_best(device, rows) else None
