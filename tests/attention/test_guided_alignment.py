"""The loss of guided alignment against its formula in NumPy, and its gradient against differences."""

from collections import defaultdict

import numpy as np
import pytest
import torch
from torch import Tensor

from nmt_cli.attention.guided_alignment import alignment_loss
from nmt_cli.ragged import Layout

SOURCE, TARGET = Layout.of([3, 1, 4], 8), Layout.of([2, 2, 3], 16)
LINKS = torch.tensor([[0, 0, 1, 3, 4, 6, 6, 6], [2, 0, 1, 3, 4, 7, 5, 4]])
"""Target and source tokens. Tokens 2 and 5 of the target have no links."""


def drawn(dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    draw = torch.Generator().manual_seed(5)
    query, key = (torch.randn(count, 6, generator=draw, dtype=torch.float64) for count in (7, 8))
    return query.to(dtype), key.to(dtype)


def by_definition(query: Tensor, key: Tensor) -> float:
    """Return the loss by loops over target tokens, in float64."""
    partners: dict[int, list[int]] = defaultdict(list)
    for target, source in LINKS.T.tolist():
        partners[target].append(source)
    loss = 0.0
    for target, sources in partners.items():
        pair = int(TARGET.segments[target])
        start, end = SOURCE.starts[pair : pair + 2].tolist()
        scores = key.double().numpy()[start:end] @ query.double().numpy()[target] / 6**0.5
        log_p = scores - np.log(np.exp(scores).sum())
        loss -= float(np.mean([log_p[source - start] for source in sources]))
    return loss


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_the_loss_is_its_formula_in_any_format_of_the_projections(dtype: torch.dtype) -> None:
    query, key = drawn(dtype)
    loss = alignment_loss(query, key, TARGET, SOURCE, LINKS)
    assert loss.dtype == torch.float32
    assert loss.item() == pytest.approx(by_definition(query, key), rel=1e-5)


def test_the_gradient_is_that_of_finite_differences() -> None:
    sides = tuple(side.requires_grad_() for side in drawn(torch.float64))

    def loss(query: Tensor, key: Tensor) -> Tensor:
        return alignment_loss(query, key, TARGET, SOURCE, LINKS)

    assert torch.autograd.gradcheck(loss, sides)


def test_without_links_loss_and_gradients_are_0() -> None:
    query, key = (side.requires_grad_() for side in drawn())
    loss = alignment_loss(query, key, TARGET, SOURCE, LINKS[:, :0])
    loss.backward()  # type: ignore[no-untyped-call]  # untyped in torch
    assert loss.item() == 0
    assert query.grad is not None and not query.grad.any()
    assert key.grad is not None and not key.grad.any()
