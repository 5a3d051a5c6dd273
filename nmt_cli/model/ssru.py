"""The simpler simple recurrent unit (SSRU, Kim et al. 2019), an alternative to self-attention in the decoder.

The state c_t of token t is a gated mean of the tokens up to t: c_t = f_t x c_(t-1) + (1 - f_t) x W x_t. The
gate f_t is a sigmoid of x_t, and the output is relu(c_t). A decoding step costs the same for any length.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nmt_cli.model.config import ModelConfig
from nmt_cli.model.layer_cache import LayerCache, Step
from nmt_cli.model.layers import projection
from nmt_cli.ragged import Layout


class Ssru(nn.Module):
    """An SSRU sub-layer with the interface of `SelfAttention`."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.value = projection(config.width, config.width, bias=False)
        self.forget = projection(config.width, config.width, bias=True)

    def forward(self, x_TD: Tensor, layout: Layout) -> Tensor:
        """Return [T, D]: for each token the ReLU of its state, a gated mean of its sentence so far."""
        gate_TD, new_TD = self._gates(x_TD)
        gate_TD = gate_TD.masked_fill((layout.positions == 0)[:, None], 0.0)
        return F.relu(scanned(gate_TD, new_TD, layout.longest)).to(x_TD.dtype)

    def step(self, x_RD: Tensor, cache: LayerCache, step: Step) -> Tensor:
        """Return [R, D]: the output for the newest token of each row. Replace the rows' states in `cache`."""
        assert cache.states is not None
        gate_RD, new_RD = self._gates(x_RD)
        state_RD = gate_RD * step.read_states(cache.states) + new_RD
        step.write_states(state_RD, cache.states)
        return F.relu(state_RD).to(x_RD.dtype)

    def _gates(self, x_TD: Tensor) -> tuple[Tensor, Tensor]:
        """Return f_t and (1 - f_t) x W x_t of each token, both [T, D] and at least in fp32."""
        precise = torch.promote_types(x_TD.dtype, torch.float32)
        gate_TD = self.forget(x_TD).to(precise).sigmoid()
        return gate_TD, (1 - gate_TD) * self.value(x_TD)


def scanned(gate_TD: Tensor, new_TD: Tensor, longest: int) -> Tensor:
    """Return c_t = gate_t x c_(t-1) + new_t for all tokens of a flat batch, by a parallel scan.

    The gate of each sentence's first token must be 0. `longest` is at least the longest sentence.
    """
    reach, longest = 1, min(longest, len(new_TD))  # `longest` may be rounded up
    while reach < longest:
        back = (0, 0, reach, 0)
        new_TD = new_TD + gate_TD * F.pad(new_TD[:-reach], back)
        gate_TD = gate_TD * F.pad(gate_TD[:-reach], back)
        reach *= 2
    return new_TD
