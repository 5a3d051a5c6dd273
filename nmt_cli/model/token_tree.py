"""The tree of tokens of each sentence, and the path of each hypothesis through it.

Hypotheses with the same beginning share its nodes. A hypothesis is a path: the set of nodes from its first to
its newest token. So hypotheses are reordered by copying their paths, and keys and values stay where they are.
A node on no path is free for the next token, and one on a path is live. See `cache.py` for the axes.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

MORE_STEPS, MORE_STEPS_ALONE = 4, 32
"""Steps for which a full tree gets nodes, in a large batch and for a single sentence.

Two sentences get half of the second number, and so on. In large batches, nodes are most of the memory. In
small batches, time counts more.
"""

MORE_IN_ADVANCE = 4
"""Steps for which a full tree gets nodes, in multiples of `TokenTree.ahead`, if that is more than 1."""

NODES_ROUNDED_TO = 8
"""When `TokenTree.used` grows, it becomes a multiple of this, so that it grows rarely."""


@dataclass(slots=True, kw_only=True)
class TokenTree:
    """The trees of a batch of sentences. A subclass stores the data of their nodes."""

    paths: Tensor
    """[B, N, M]: the nodes on the path of each hypothesis. A slot that is not in use has none."""

    depths: Tensor
    """[B, M]: the number of tokens before a node."""

    ages: Tensor
    """[B]: the number of tokens of each hypothesis of a sentence."""

    used: int = 0
    """The nodes in use are among the first `used` of each sentence."""

    ahead: int = 1
    """Steps for which nodes are reserved at once. If more than 1, all slots are rows."""

    ready: int = 0
    """Steps for which nodes are still reserved. Meanwhile the host need not wait for the device."""

    @property
    def slots(self) -> int:
        """N, the number of slots of a sentence."""
        return self.paths.shape[1]

    def reserve_for(self, steps: int) -> None:
        """Reserve nodes for `steps` steps at once from now on. All slots are rows if it is more than 1."""
        self.ahead = steps

    def mask_nodes(self, rows_R: Tensor, heads: int, window: int) -> tuple[Tensor, Tensor]:
        """Add a new node to the path of each row, and return the indices of the new nodes, [R, H], and the
        nodes that each slot sees.

        An index counts in the flat keys [B x H x M]. The mask of seen nodes is [B, N, `used`]. A slot sees
        its new node and the `window` // 2 nodes of its path before it, or the whole path with a `window` of
        0.
        """
        alive = self._alive() if self.ready else self.get_ready()
        self.ready -= 1
        # False sorts before True, so free nodes come first.
        nodes_BN = alive.sort(dim=1, stable=True).indices[:, : self.slots]
        sentences, slots, capacity = self.paths.shape
        in_use = torch.zeros(sentences * slots, dtype=torch.bool, device=self.paths.device)
        in_use.index_fill_(0, rows_R, True)
        # The node of a slot that is not in use stays on no path, and is free again in the next step.
        self.paths.scatter_(2, nodes_BN[:, :, None], in_use.view(sentences, slots, 1))
        self.depths.scatter_(1, nodes_BN, self.ages[:, None].expand_as(nodes_BN))
        seen = self.paths[:, :, : self.used]
        if window:
            seen = seen & (self.depths[:, None, : self.used] >= self.ages[:, None, None] - window // 2)
        head_numbers = torch.arange(heads, device=self.paths.device)
        first_RH = ((rows_R // slots)[:, None] * heads + head_numbers) * capacity
        return first_RH + nodes_BN.flatten()[rows_R, None], seen

    def reorder_paths(self, parents_BN: Tensor, in_use_BN: Tensor) -> None:
        """Replace the path of each slot by the path of its parent slot. Slots not in use get no path."""
        self.paths = of_parents(self.paths, parents_BN) & in_use_BN[:, :, None]

    def get_ready(self) -> Tensor:
        """Reserve free nodes for the next `ahead` steps, so that these steps need not wait for the device.

        This call waits for the device, because it reads how many nodes are on a path. If too few of the other
        nodes are in use, `used` grows, and a full tree is rebuilt with more nodes. Return [B, `used`]: True
        for nodes on a path.
        """
        alive = self._alive()
        # All sentences get the number of nodes that the largest one needs.
        live = int(alive.sum(1).max())
        needed = live + self.slots * self.ahead
        if needed > self.used:
            if needed > self.paths.shape[2]:
                self.rebuild(torch.arange(len(self.ages), device=self.paths.device))
            self.used = min(needed + -needed % NODES_ROUNDED_TO, self.paths.shape[2])
            alive = self._alive()
        self.ready = self.ahead
        return alive

    def _alive(self) -> Tensor:
        """Return [B, `used`]: True for nodes on a path."""
        return self.paths[:, :, : self.used].any(1)

    def rebuild(self, sentences: Tensor, joining: int = 0) -> None:
        """Keep only `sentences`, indices in this order, and their nodes on paths. Append `joining` sentences
        with empty trees.

        All trees get new free nodes, and `used` counts again from the nodes that are kept.
        """
        alive = self.paths[sentences].any(1)
        live = int(alive.sum(1).max()) if alive.numel() else 0
        alone = MORE_STEPS_ALONE // max(1, len(sentences) + joining)
        steps = max(MORE_STEPS, alone) if self.ahead == 1 else MORE_IN_ADVANCE * self.ahead
        capacity = live + steps * self.slots  # a step needs a node for each slot
        padded_alive = F.pad(alive, (0, max(0, capacity - alive.shape[1])))
        order = torch.sort(padded_alive, dim=1, descending=True, stable=True).indices
        order = order[:, :capacity].clamp(max=alive.shape[1] - 1)
        # For sentences with fewer live nodes, `order` ends in repeated nodes. They must be on no path.
        repeated = torch.arange(capacity, device=order.device) >= alive.sum(1, keepdim=True)
        paths = self.paths[sentences].gather(2, order[:, None].expand(-1, self.slots, -1))
        depths = self.depths[sentences].gather(1, order)
        self.paths = F.pad(paths & ~repeated[:, None], (0, 0, 0, 0, 0, joining))
        self.depths = F.pad(depths, (0, 0, 0, joining))
        self.ages, self.used, self.ready = F.pad(self.ages[sentences], (0, joining)), live, 0
        self.move_nodes(sentences, order, joining)

    def move_nodes(self, sentences: Tensor, order_BM: Tensor, joining: int) -> None:
        """Keep the data of nodes `order_BM` of `sentences`. Append zeros for `joining` sentences."""
        raise NotImplementedError


def of_parents(x_BNC: Tensor, parents_BN: Tensor) -> Tensor:
    """Return [B, N, C]: for each slot the values of its parent slot in the same sentence."""
    return x_BNC.gather(1, parents_BN[:, :, None].expand(-1, -1, x_BNC.shape[2]))
