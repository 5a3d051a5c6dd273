"""Attention of a decoding step: the newest tokens of a sentence's hypotheses over its cached nodes.

A node is a cached token. All hypotheses of a sentence share its nodes. So a program computes one head for all
of them, by an online softmax over blocks of nodes. The reference is `cached.Masked`.

Legend: B sentences with N slots and M nodes, H heads, R rows, K and V channels of keys and values. In
kernels, names in capitals are compile-time constants. `k_sentence`, `k_head`, `k_node` are strides of `keys`.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from nmt_cli.attention.cached import Rows
from nmt_cli.attention.tile.fused import read, rows, scores, softmax_step, write

MIN_TILE, MAX_TILE = 16, 64
"""Hypotheses of a program: the minimum of `tl.dot`, and the maximum that fits registers."""

BLOCK_BYTES, LARGEST_BLOCK = 16 * 1024, 64
"""Maximum bytes of a block of keys or values, and maximum number of its nodes."""


@dataclass(frozen=True, slots=True)
class Tiled:
    """The nodes that the rows of a step see, as a mask for the kernel. Every slot has a row."""

    rows: Rows
    seen: Tensor
    """[B, N, M], 0 or 1. N may be 1 for all slots."""

    @staticmethod
    def of(rows: Rows, seen_BNM: Tensor) -> Tiled:
        """Return the nodes that rows see by the mask `seen_BNM`. Every slot has a row. N may be 1 for all."""
        assert rows.full
        return Tiled(rows, seen_BNM.expand(*rows.shape, -1).view(torch.uint8))

    def attend(self, query_RHK: Tensor, keys_BHMK: Tensor, values_BHMV: Tensor) -> Tensor:
        """Return [R, H x V]: the attention of each row over its nodes, by the Triton kernel."""
        (sentences, slots), nodes = self.rows.shape, self.seen.shape[2]
        _, heads, channels = query_RHK.shape
        values = values_BHMV.shape[3]
        out_RHV = query_RHK.new_empty(len(query_RHK), heads, values)
        constants = options(slots, channels, values, query_RHK.element_size())
        # Triton launches on the current device, even if the tensors are on another.
        with torch.cuda.device_of(query_RHK):
            attend[sentences * heads, triton.cdiv(slots, constants["TILE"])](
                *(query_RHK, keys_BHMK, values_BHMV, self.seen, out_RHV, slots, nodes, heads),
                *query_RHK.stride()[:2],
                *keys_BHMK.stride()[:3],
                *values_BHMV.stride()[:3],
                *self.seen.stride(),
                channels**-0.5,
                **constants,
            )
        return out_RHV.flatten(1)


def options(slots: int, channels: int, values: int, element_size: int) -> dict[str, int]:
    """Return the compile-time constants of `attend` by name: widths of heads, sizes of tile and block."""
    padded_k, padded_v = (max(16, triton.next_power_of_2(width)) for width in (channels, values))
    block = BLOCK_BYTES // (max(padded_k, padded_v) * element_size)
    return {
        **{"K": channels, "V": values, "PADDED_K": padded_k, "PADDED_V": padded_v},
        "TILE": min(max(MIN_TILE, triton.next_power_of_2(slots)), MAX_TILE),
        "BLOCK": max(16, min(LARGEST_BLOCK, block)),
    }


# The numbers of slots and nodes change while a batch runs. Triton would compile again for values of 1 and
# multiples of 16.
@triton.jit(do_not_specialize=["hypotheses", "nodes", "seen_sentence", "seen_slot"])
def attend(
    query, keys, values, seen, out, hypotheses, nodes, heads,
    q_row, q_head, k_sentence, k_head, k_node, v_sentence, v_head, v_node,
    seen_sentence, seen_slot, seen_node, scale,
    K: tl.constexpr, V: tl.constexpr, PADDED_K: tl.constexpr, PADDED_V: tl.constexpr,
    TILE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Write `out` [R, heads, V], the attention of each row in `query` over the nodes of its sentence.

    `seen` is 1 for the nodes that a slot attends to. Rows without a node get zeros.
    """
    sentence, head = (tl.program_id(0) // heads).to(tl.int64), tl.program_id(0) % heads
    slot = tl.program_id(1) * TILE + tl.arange(0, TILE)
    is_slot = slot < hypotheses
    query_tile = read(query, rows(sentence * hypotheses, slot, head, q_row, q_head), is_slot, K, PADDED_K)
    highest = tl.full([TILE], float("-inf"), tl.float32)
    total = tl.zeros([TILE], tl.float32)
    sums = tl.zeros([TILE, PADDED_V], tl.float32)
    for block in range(0, nodes, BLOCK):
        node = block + tl.arange(0, BLOCK)
        is_node = node < nodes
        k_rows, v_rows = rows(0, node, head, k_node, k_head), rows(0, node, head, v_node, v_head)
        k_block = read(keys + sentence * k_sentence, k_rows, is_node, K, PADDED_K)
        v_block = read(values + sentence * v_sentence, v_rows, is_node, V, PADDED_V)
        cells = slot.to(tl.int64)[:, None] * seen_slot + node[None, :] * seen_node
        inside = is_slot[:, None] & is_node[None, :]
        visible = tl.load(seen + sentence * seen_sentence + cells, mask=inside, other=0) != 0
        logits = scores(query_tile, k_block.to(query_tile.dtype), visible, scale)
        highest, total, weights, shrunk = softmax_step(highest, total, logits)
        weights = weights.to(query_tile.dtype)
        mixed = v_block.to(query_tile.dtype)
        sums = tl.dot(weights, mixed, sums * shrunk[:, None], input_precision="ieee")
    total = tl.where(total == 0.0, 1.0, total)
    out_rows = rows(sentence * hypotheses, slot, head, heads * V, V)
    write(out, out_rows, is_slot, sums / total[:, None], V, PADDED_V)
