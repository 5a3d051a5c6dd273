"""The SSRU (Kim et al. 2019): what a decoder may have in the place of its self-attention.

A token keeps a share of what its sentence was so far, channel by channel, and takes the rest from itself: c_t
is f_t x c_(t-1) + (1 - f_t) x W x_t, where f_t is a sigmoid of x_t, and comes out as relu(c_t). So a step of
decoding costs the same however long the sentence is.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nmt_cli.model.cache import LayerCache, Step
from nmt_cli.model.config import ModelConfig
from nmt_cli.model.layers import projection
from nmt_cli.ragged import Layout


class Ssru(nn.Module):
    """Each target token sees a gated mean of itself and those before it; called as `SelfAttention` is."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.value = projection(config.width, config.width, bias=False)
        self.forget = projection(config.width, config.width, bias=True)

    def forward(self, x_TD: Tensor, layout: Layout) -> Tensor:
        """[T, D] to [T, D]."""
        kept_TD, new_TD = self._parts(x_TD)
        kept_TD = kept_TD.masked_fill((layout.positions == 0)[:, None], 0.0)
        return F.relu(scanned(kept_TD, new_TD, layout.longest)).to(x_TD.dtype)

    def step(self, x_RD: Tensor, cache: LayerCache, step: Step) -> Tensor:
        """The next token of each row, from the state of its place in the cache; [R, D] to [R, D]."""
        assert cache.states is not None
        kept_RD, new_RD = self._parts(x_RD)
        state_RD = kept_RD * step.recalled(cache.states) + new_RD
        step.remember(state_RD, cache.states)
        return F.relu(state_RD).to(x_RD.dtype)

    def _parts(self, x_TD: Tensor) -> tuple[Tensor, Tensor]:
        """The share of the past that each channel keeps, and what comes to it, in fp32 at least."""
        precise = torch.promote_types(x_TD.dtype, torch.float32)
        kept_TD = self.forget(x_TD).to(precise).sigmoid()
        return kept_TD, (1 - kept_TD) * self.value(x_TD)


def scanned(kept_TD: Tensor, new_TD: Tensor, longest: int) -> Tensor:
    """c_t = kept_t x c_(t-1) + new_t, where `kept_TD` is 0 at the first token of each sentence.

    All tokens at once: each round doubles how far back the sums reach, and none reaches beyond that 0.
    """
    reach, longest = 1, min(longest, len(new_TD))  # which may be rounded up
    while reach < longest:
        back = (0, 0, reach, 0)
        new_TD = new_TD + kept_TD * F.pad(new_TD[:-reach], back)
        kept_TD = kept_TD * F.pad(kept_TD[:-reach], back)
        reach *= 2
    return new_TD
