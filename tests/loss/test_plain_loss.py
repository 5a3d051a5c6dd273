"""The definition of the loss, compared with PyTorch's and with closed forms."""

import math
from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from nmt_cli.loss.plain_loss import IGNORED, cross_entropy


@pytest.mark.parametrize("every", [0, 3, 1], ids=["no filler", "some filler", "only filler"])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_reference_equals_pytorchs_cross_entropy(
    smoothing: float,
    every: int,
    random_batch: Callable[..., tuple[Tensor, Tensor, Tensor]],
    differentiated: Callable[..., list[Tensor]],
) -> None:
    def pytorch(x: Tensor, weight: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        summed = partial(F.cross_entropy, target=targets, ignore_index=IGNORED, reduction="sum")
        logits = x @ weight.T
        return summed(logits, label_smoothing=smoothing), summed(logits.detach())

    batch = random_batch(11, 37, 8, torch.float64, every)
    expected = differentiated(pytorch, *batch)
    actual = differentiated(cross_entropy, *batch, smoothing=smoothing)
    for a, b in zip(actual, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-13, atol=1e-13)


def test_smoothing_is_spread_over_all_entries_including_the_target() -> None:
    x, weight = (
        torch.ones(1, 1, dtype=torch.float64),
        torch.tensor([[0.0], [math.log(3)]], dtype=torch.float64),
    )
    losses = cross_entropy(x, weight, torch.tensor([1]), smoothing=0.5)
    assert losses.nll.item() == pytest.approx(math.log(4 / 3), abs=1e-15)
    assert losses.smoothed.item() == pytest.approx(0.75 * math.log(4 / 3) + 0.25 * math.log(4), abs=1e-15)
