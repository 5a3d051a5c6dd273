"""Gradients under bfloat16 autocast have at most twice the error of plain, padded PyTorch."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from nmt_cli.model.config import ModelConfig
from nmt_cli.model.transformer import Transformer
from nmt_cli.ragged import Layout
from tests.model.models import model_of

Batch = tuple[Tensor, Tensor, Layout, Layout]

BASE = ModelConfig(residual_dropout=0.0)
SMALL = replace(BASE, encoder_layers=2, decoder_layers=2, width=64, feed_forward=128, heads=4)


def ours(model: Transformer, *batch: Tensor) -> Tensor:
    return model.logits(model(*batch))


def gradients(
    logits: Callable[..., Tensor], model: Transformer, batches: Sequence[Batch], *, autocast: bool
) -> dict[str, Tensor]:
    """Return the gradients of the mean cross-entropy over all batches, with artificial targets."""
    model.zero_grad()
    tokens = sum(len(inputs_T) for _, inputs_T, _, _ in batches)
    for batch in batches:
        with torch.autocast(batch[0].device.type, torch.bfloat16, enabled=autocast):
            scores_TV = logits(model, *batch)
        scores_TV = scores_TV.to(torch.promote_types(scores_TV.dtype, torch.float32))
        wanted_T = (batch[1] * 7 + 3) % 40
        loss = F.cross_entropy(scores_TV, wanted_T, reduction="sum") / tokens
        torch.autograd.backward(loss)
    return {name: p.grad.double() for name, p in model.named_parameters() if p.grad is not None}


def joined(batches: Sequence[Batch], device: str) -> Batch:
    """Return one ragged batch of all sentences."""
    sources, targets, source, target = zip(*batches, strict=True)
    layouts = [Layout.of(torch.cat([one.lengths for one in side]).numpy()) for side in (source, target)]
    return torch.cat(sources), torch.cat(targets), layouts[0].to(device), layouts[1].to(device)


def assert_earned(
    model: Transformer, batches: Sequence[Batch], device: str, padded: Callable[..., Tensor]
) -> None:
    """Compare our gradients for all sentences at once with those of `padded`, batch by batch."""
    actual = gradients(ours, model, [joined(batches, device)], autocast=True)
    plain = gradients(padded, model, batches, autocast=True)
    exact = gradients(padded, model.double(), batches, autocast=False)
    assert actual.keys() == exact.keys()
    for name, expected in exact.items():
        assert actual[name].isfinite().all(), name
        assert (actual[name] - expected).norm() <= 2 * (plain[name] - expected).norm(), name


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_bfloat16_gradients_have_at_most_twice_the_error_of_plain_pytorch(
    norm: str, batch: Callable[..., Batch], hand_padded: Callable[..., Tensor]
) -> None:
    torch.manual_seed(1)
    config = replace(SMALL, norm="pre") if norm == "pre" else SMALL
    batches = [batch([20, 31, 1], [24, 29, 3], 1), batch([45, 17, 26, 9], [40, 22, 30, 12], 2)]
    assert_earned(model_of(config, 40), batches, "cpu", hand_padded)


@pytest.mark.gpu
def test_a_large_step_of_the_base_model_has_at_most_twice_the_error_of_plain_pytorch(
    cuda: str, batch: Callable[..., Batch], hand_padded: Callable[..., Tensor]
) -> None:
    torch.manual_seed(1)
    drawn = torch.empty(900).log_normal_(3.2, 0.55).clamp(1, 250).int().sort().values
    lengths = drawn[drawn.cumsum(0) <= 25_000].tolist()
    batches = []
    for first in range(0, len(lengths), 100):
        part = lengths[first : first + 100]
        source_S, inputs_T, source, target = batch(part, part[::-1], first)
        batches.append((source_S.to(cuda), inputs_T.to(cuda), source.to(cuda), target.to(cuda)))
    assert sum(lengths) > 20_000
    assert_earned(model_of(BASE, 37_000).to(cuda), batches, cuda, hand_padded)
