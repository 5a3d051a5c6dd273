"""The SSRU's sums over a sentence, against their definition: one token after another."""

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
    kept, new = torch.rand(sum(lengths), 3, dtype=torch.float64), torch.randn(sum(lengths), 3).double()
    kept, new = kept.requires_grad_(), new.requires_grad_()
    begins = (layout.positions == 0)[:, None]
    found = scanned(kept.masked_fill(begins, 0.0), new, layout.longest)
    wanted, state = [], torch.zeros(3, dtype=torch.float64)
    for share, more, first in zip(kept, new, begins, strict=True):
        state = more if first else share * state + more
        wanted.append(state)
    assert (found - torch.stack(wanted)).abs().max() < 1e-12
    gradients = [
        torch.autograd.grad(x.square().sum(), (kept, new), allow_unused=True, materialize_grads=True)
        for x in (found, torch.stack(wanted))
    ]
    for one, other in zip(*gradients, strict=True):
        assert (one - other).abs().max() < 1e-9
