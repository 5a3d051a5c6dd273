"""Attention of a step of decoding: the newest tokens of a sentence's hypotheses over its cached nodes.

All hypotheses of a sentence share its keys and values, so a program computes one head of them together, by an
online softmax over blocks of nodes. The reference is `cached.Masked`.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from nmt_cli.attention.cached import Rows
from nmt_cli.attention.tile.fused import read, rows, scores, write

LEAST_TILE, MOST_TILE = 16, 64
"""Hypotheses that a program computes: as many as `tl.dot` wants, and no more than fit registers."""

BLOCK_BYTES, LARGEST_BLOCK = 16 * 1024, 64
"""What a block of keys or values may hold, and the most nodes in it."""


@dataclass(frozen=True, slots=True)
class Tiled:
    """The nodes that the rows of a step see, for the kernel; every place has its row."""

    rows: Rows
    seen: Tensor
    """[B, N, M], 0 or 1; N may be 1 for all places."""

    @staticmethod
    def of(rows: Rows, seen_BNM: Tensor) -> Tiled:
        """The same for the mask `seen_BNM`."""
        assert rows.full
        return Tiled(rows, seen_BNM.expand(*rows.shape, -1).view(torch.uint8))

    def attend(self, query_RHK: Tensor, keys_BHMK: Tensor, values_BHMV: Tensor) -> Tensor:
        """See `Seen`."""
        (sentences, places), nodes = self.rows.shape, self.seen.shape[2]
        _, heads, channels = query_RHK.shape
        values = values_BHMV.shape[3]
        out_RHV = query_RHK.new_empty(len(query_RHK), heads, values)
        chosen = options(places, channels, values, query_RHK.element_size())
        # Triton launches on the current device, whichever the tensors are on.
        with torch.cuda.device_of(query_RHK):
            attend[sentences * heads, triton.cdiv(places, chosen["TILE"])](
                *(query_RHK, keys_BHMK, values_BHMV, self.seen, out_RHV, places, nodes, heads),
                *query_RHK.stride()[:2],
                *keys_BHMK.stride()[:3],
                *values_BHMV.stride()[:3],
                *self.seen.stride(),
                channels**-0.5,
                **chosen,
            )
        return out_RHV.flatten(1)


def options(places: int, channels: int, values: int, element_size: int) -> dict[str, int]:
    """What the kernel is compiled for: heads of these widths, and tiles and blocks that suit them."""
    padded_k, padded_v = (max(16, triton.next_power_of_2(width)) for width in (channels, values))
    block = BLOCK_BYTES // (max(padded_k, padded_v) * element_size)
    return {
        **{"K": channels, "V": values, "PADDED_K": padded_k, "PADDED_V": padded_v},
        "TILE": min(max(LEAST_TILE, triton.next_power_of_2(places)), MOST_TILE),
        "BLOCK": max(16, min(LARGEST_BLOCK, block)),
    }


# The numbers of places and nodes change while a batch runs, and Triton would compile again where one is 1 or
# a multiple of 16.
@triton.jit(do_not_specialize=["hypotheses", "nodes", "seen_sentence", "seen_place"])
def attend(
    query,
    keys,
    values,
    seen,
    out,
    hypotheses,
    nodes,
    heads,
    q_row,
    q_head,
    k_sentence,
    k_head,
    k_node,
    v_sentence,
    v_head,
    v_node,
    seen_sentence,
    seen_place,
    seen_node,
    scale,
    K: tl.constexpr,
    V: tl.constexpr,
    PADDED_K: tl.constexpr,
    PADDED_V: tl.constexpr,
    TILE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Write `out` [R, heads, V]; a row that sees nothing gets zeros."""
    sentence, head = (tl.program_id(0) // heads).to(tl.int64), tl.program_id(0) % heads
    place = tl.program_id(1) * TILE + tl.arange(0, TILE)
    is_place = place < hypotheses
    query_tile = read(query, rows(sentence * hypotheses, place, head, q_row, q_head), is_place, K, PADDED_K)
    highest = tl.full([TILE], float("-inf"), tl.float32)
    total = tl.zeros([TILE], tl.float32)
    sums = tl.zeros([TILE, PADDED_V], tl.float32)
    for block in range(0, nodes, BLOCK):
        node = block + tl.arange(0, BLOCK)
        is_node = node < nodes
        k_block = read(
            keys + sentence * k_sentence, rows(0, node, head, k_node, k_head), is_node, K, PADDED_K
        )
        v_block = read(
            values + sentence * v_sentence, rows(0, node, head, v_node, v_head), is_node, V, PADDED_V
        )
        cells = place.to(tl.int64)[:, None] * seen_place + node[None, :] * seen_node
        inside = is_place[:, None] & is_node[None, :]
        visible = tl.load(seen + sentence * seen_sentence + cells, mask=inside, other=0) != 0
        logits = scores(query_tile, k_block.to(query_tile.dtype), visible, scale)
        higher = tl.maximum(highest, tl.max(logits, 1))
        # Rows that have seen no node yet: -inf minus -inf would be nan.
        finite = tl.where(higher == float("-inf"), 0.0, higher)
        weights = tl.exp2(logits - finite[:, None])
        # What was summed up so far is relative to a lower maximum.
        shrunk = tl.exp2(highest - finite)
        total = total * shrunk + tl.sum(weights, 1)
        weights = weights.to(query_tile.dtype)
        mixed = v_block.to(query_tile.dtype)
        sums = tl.dot(weights, mixed, sums * shrunk[:, None], input_precision="ieee")
        highest = higher
    total = tl.where(total == 0.0, 1.0, total)
    write(
        out,
        rows(sentence * hypotheses, place, head, heads * V, V),
        is_place,
        sums / total[:, None],
        V,
        PADDED_V,
    )
