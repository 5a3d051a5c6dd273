"""Attention on any device: chooses between the padded and the fused implementation.

No other module of this subpackage checks the device.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from nmt_cli.attention import padded_attention
from nmt_cli.attention.attention_options import PLAIN, Options
from nmt_cli.attention.cached_attention import Masked, Rows
from nmt_cli.attention.projections import Heads, parts_of
from nmt_cli.ragged import Layout
from nmt_cli.runtime.kernels.families import usable

WIDEST = {2: 512, 4: 256}
"""Maximum channels of a head in the fused kernel, by bytes per value."""

PART = {"cpu": 16}
"""Number of segments to pad and compute at once without gradients, by device type.

A few keys and values stay in the processor's cache. Other devices compute all segments at once.
"""


def attend_projected(
    projections: Sequence[Tensor], heads: Heads, q: Layout, k: Layout, options: Options = PLAIN
) -> Tensor:
    """Compute attention within each segment of a ragged batch. Return [T, H, V] in the dtype of the queries.

    projections: queries [T, H x K], keys [S, H x K] and values [S, H x V], in one, two or three matrices,
        as `parts_of` explains.
    q, k: the layouts of queries and keys.

    A query without keys gets zeros. Without gradients and in one CPU thread, the bits of a segment do not
    depend on the other segments. On a CPU, raise `ValueError` as `_check` does.
    """
    q_THK, k_SHK, v_SHV = parts_of(projections, heads)
    kind = implementation(q_THK.device, heads.keys, heads.values, q_THK.dtype)
    if kind == "fused" and options.bias_HD is None:  # the fused kernels add no bias to scores
        from nmt_cli.attention import gpu_attention  # Triton is absent on machines without a GPU

        return gpu_attention.attend_projected(projections, heads, q, k, options)
    _check(q, k, options)
    part = PART.get(q_THK.device.type, len(q.lengths))
    if part >= len(q.lengths) or options.drop or torch.is_grad_enabled():
        return padded_attention.attend(q_THK, k_SHK, v_SHV, q, k, options)
    outputs = [
        padded_attention.attend(q_THK[queries], k_SHK[keys], v_SHV[keys], q_part, k_part, options)
        for (queries, q_part), (keys, k_part) in zip(q.parts(part), k.parts(part), strict=True)
    ]
    return torch.cat(outputs)


def _check(q: Layout, k: Layout, options: Options) -> None:
    """Raise `ValueError` for arguments that do not fit together: layouts with other numbers of segments,
    dropout without a seed, and causal order or a window between two layouts."""
    if len(q.starts) != len(k.starts):
        raise ValueError(f"q holds {len(q.starts) - 1} segments, but k holds {len(k.starts) - 1}")
    if (options.causal or options.window) and q.starts is not k.starts:
        raise ValueError("causal attention and windows need one layout for queries and keys")
    if options.drop and options.seed is None:
        raise ValueError("dropout needs a seed")


def implementation(device: torch.device, key_width: int, value_width: int, dtype: torch.dtype) -> str:
    """Return "fused" on a GPU if the kernels are usable and `fits` is True, else "padded"."""
    fused = usable("attention", device) and fits(key_width, value_width, dtype)
    return "fused" if fused else "padded"


def fits(key_width: int, value_width: int, dtype: torch.dtype) -> bool:
    """Return whether a fused kernel can hold a head: widths are multiples of 8 and at most `WIDEST`."""
    widest = WIDEST.get(dtype.itemsize, 0)
    return max(key_width, value_width) <= widest and not (key_width % 8 or value_width % 8)


def seen_by(rows: Rows, seen_BNM: Tensor, dtype: torch.dtype, bias_BHM: Tensor | None = None) -> Masked:
    """Return the nodes that each row of a decoding step attends to.

    seen_BNM: a mask of the first M cached nodes. N may be 1 if it is the same for all slots.
    dtype: that of matrix products.
    bias_BHM: numbers to add to the scores.
    """
    return Masked.of(rows, seen_BNM, dtype, PART.get(seen_BNM.device.type, 0), bias_BHM)


def attend_newest(
    projected_RC: Tensor, heads: Heads, nodes_RH: Tensor, keys_BHMK: Tensor, values_BHMV: Tensor, seen: Masked
) -> Tensor:
    """Store the new keys and values of R rows in the cache, and return the attention of each row, [R, H x V].

    projected_RC: a row is a query, a key and a value. Rows after those of `nodes_RH` are dummies: nothing
        of them is stored, and their results have no meaning.
    nodes_RH: for each row and head, the index of its new node among the B x H x M cached ones.
    seen: the nodes that each row attends to, the new ones included.
    """
    query_RHK, key_RHK, value_RHV = parts_of([projected_RC], heads)
    for new_RHC, cached_BHMC in ((key_RHK, keys_BHMK), (value_RHV, values_BHMV)):
        rows = new_RHC[: len(nodes_RH)].flatten(0, 1)
        cached_BHMC.view(-1, cached_BHMC.shape[3]).index_copy_(0, nodes_RH.flatten(), rows)
    return seen.attend(query_RHK, keys_BHMK, values_BHMV)
