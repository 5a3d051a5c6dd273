"""The parallel scan of the SSRU, compared with a loop over the tokens."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from nmt_cli.model.ssru import scanned
from nmt_cli.ragged import Layout


@given(lengths=st.lists(st.integers(1, 40), min_size=1, max_size=5), rounded_up=st.integers(0, 9))
@settings(max_examples=30)
def test_the_parallel_scan_equals_a_loop_over_the_tokens(lengths: list[int], rounded_up: int) -> None:
    torch.manual_seed(sum(lengths))
    layout = Layout.of(lengths, max(lengths) + rounded_up)
    gate, new = torch.rand(sum(lengths), 3, dtype=torch.float64), torch.randn(sum(lengths), 3).double()
    gate, new = gate.requires_grad_(), new.requires_grad_()
    begins = (layout.positions == 0)[:, None]
    actual = scanned(gate.masked_fill(begins, 0.0), new, layout.longest)
    expected, state = [], torch.zeros(3, dtype=torch.float64)
    for share, more, first in zip(gate, new, begins, strict=True):
        state = more if first else share * state + more
        expected.append(state)
    assert (actual - torch.stack(expected)).abs().max() < 1e-12
    gradients = [
        torch.autograd.grad(x.square().sum(), (gate, new), allow_unused=True, materialize_grads=True)
        for x in (actual, torch.stack(expected))
    ]
    for one, other in zip(*gradients, strict=True):
        assert (one - other).abs().max() < 1e-9
