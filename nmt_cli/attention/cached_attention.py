"""Attention in a decoding step: the newest token of each hypothesis over cached keys and values.

A node is a cached token: a token of a hypothesis, or a source token. B sentences have M nodes each, with keys
[B, H, M, K] and values [B, H, M, V], which all hypotheses of the sentence share. A sentence has N slots for
hypotheses. Slot n of sentence b has the number b x N + n. The R rows of a step are the newest tokens of the
slots in use, in ascending order. A mask `seen_BNM` is True for the nodes that the row of a slot attends to.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

ROUND = 8
"""More rows than this are rounded up to a multiple of it. Libraries prepare kernels for each new number of
rows, which costs more than the added rows. Among fewer rows, an added row costs more."""


@dataclass(frozen=True, slots=True)
class Rows:
    """The slots of the R rows of a step, and copies between rows and slots.

    R includes dummy rows at the end if the number is rounded up. Their results are never used.
    """

    to_slots: Tensor
    """[R]: the slot to which `spread` copies each row. Dummy rows go to an extra slot after the last."""

    from_slots: Tensor
    """[R]: the slot from which `gathered` copies each row. Dummy rows are copies of the first row."""

    full: bool
    """Whether every slot has a row, so that copies are not needed."""

    shape: tuple[int, int]
    """B and N, the numbers of sentences and of slots per sentence."""

    @staticmethod
    def at(slots_R: Tensor, sentences: int, slots: int, rounded: bool = True) -> Rows:
        """Return the rows of the slots numbered `slots_R`, ascending. Each of `sentences` has `slots` slots.

        rounded: if there are more than `ROUND` rows, add dummy rows up to a multiple of `ROUND`.
        """
        extra = -len(slots_R) % ROUND if rounded and len(slots_R) > ROUND else 0
        shape, total = (sentences, slots), sentences * slots
        if not extra:
            return Rows(slots_R, slots_R, len(slots_R) == total, shape)
        return Rows(
            to_slots=F.pad(slots_R, (0, extra), value=total),
            from_slots=torch.cat([slots_R, slots_R[:1].expand(extra)]),
            full=False,
            shape=shape,
        )

    def spread(self, x_RHC: Tensor) -> Tensor:
        """Return [B, N, H, C]: each row in its slot. Slots without a row hold arbitrary values."""
        if not self.full:
            slots_PHC = x_RHC.new_empty(self.shape[0] * self.shape[1] + 1, *x_RHC.shape[1:])
            x_RHC = slots_PHC.index_copy_(0, self.to_slots, x_RHC)[:-1]
        return x_RHC.view(*self.shape, *x_RHC.shape[1:])

    def gathered(self, x_BNHC: Tensor) -> Tensor:
        """Return [R, H x C]: the row of each slot in use, heads side by side. Dummy rows repeat the first."""
        x_PC = x_BNHC.reshape(self.shape[0] * self.shape[1], -1)
        return x_PC if self.full else x_PC.index_select(0, self.from_slots)


@dataclass(frozen=True, slots=True)
class Masked:
    """The nodes that each row sees, as a mask of scores. Scores are computed for all nodes."""

    rows: Rows
    bias: Tensor
    """[B, 1 or H, N, M], added to scores: 0 or a bias for seen nodes, very negative for others. N may be 1
    for all slots."""

    parts: Sequence[tuple[slice, int]]
    """Ranges of sentences to compute at once, and for each the number of leading nodes to read. If empty, one
    call of PyTorch's own attention computes all."""

    @staticmethod
    def of(
        rows: Rows, seen_BNM: Tensor, dtype: torch.dtype, part: int, bias_BHM: Tensor | None = None
    ) -> Masked:
        """Return the mask of a step for scores in `dtype`.

        seen_BNM: True for each node that the row of a slot sees.
        part: the number of sentences to compute at once. 0 is one call of PyTorch's own attention instead of
            six operations.
        bias_BHM: numbers to add to the scores of seen nodes.
        """
        sentences, _, nodes = seen_BNM.shape
        bias = torch.zeros(seen_BNM.shape, dtype=dtype, device=seen_BNM.device)[:, None]
        if bias_BHM is not None:
            bias = bias + bias_BHM[:, :, None].to(dtype)
        # Not -inf: a slot that is not in use sees no node, and its softmax would be nan.
        bias.masked_fill_(~seen_BNM[:, None], torch.finfo(dtype).min)
        if not part:
            return Masked(rows, bias, [])
        if sentences <= part or not nodes:
            return Masked(rows, bias, [(slice(0, sentences), nodes)])
        last = (seen_BNM.any(1) * torch.arange(1, nodes + 1, device=seen_BNM.device)).amax(1).tolist()
        starts = range(0, sentences, part)
        parts = [(slice(i, i + part), max(1, *last[i : i + part])) for i in starts]
        return Masked(rows, bias, parts)

    def attend(self, query_RHK: Tensor, keys_BHMK: Tensor, values_BHMV: Tensor) -> Tensor:
        """Return [R, H x V]: the attention of each row over its nodes, by products with all nodes."""
        if not self.parts:
            query_BHNK = self.rows.spread(query_RHK).transpose(1, 2)
            keys, values = (x[:, :, : self.bias.shape[3]] for x in (keys_BHMK, values_BHMV))
            # On a GPU a step waits for the host. This call makes 206 operations per step of 266 by separate
            # products.
            mixed_BHNV = F.scaled_dot_product_attention(query_BHNK, keys, values, attn_mask=self.bias)
            return self.rows.gathered(mixed_BHNV.transpose(1, 2))
        query_BNHK = self.rows.spread(query_RHK * query_RHK.shape[-1] ** -0.5)
        mixed_BNHV = query_BNHK.new_empty(*query_BNHK.shape[:3], values_BHMV.shape[3])
        for part, longest in self.parts:
            keys, values = keys_BHMK[part, :, :longest], values_BHMV[part, :, :longest]
            scores_BHNM = query_BNHK[part].transpose(1, 2) @ keys.mT
            weights_BHNM = scores_BHNM.add_(self.bias[part, :, :, :longest]).softmax(-1)
            mixed_BNHV[part] = (weights_BHNM @ values).transpose(1, 2)
        return self.rows.gathered(mixed_BNHV)
