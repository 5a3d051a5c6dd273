"""The cost of a model, compared with PyTorch's counts."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from nmt_cli.model.config import ModelConfig
from nmt_cli.model.cost import parameters, training_flops
from tests.model.models import model_of

SMALL = ModelConfig(encoder_layers=2, decoder_layers=3, width=16, feed_forward=24, heads=4)


def test_a_step_of_the_base_model_has_9_5e12_operations() -> None:
    assert training_flops(ModelConfig(), 37_000, 25_000, 25_000) == pytest.approx(9.5e12, rel=0.01)


@pytest.mark.parametrize(
    "config",
    [
        SMALL,
        replace(SMALL, key_width=8, value_width=12),
        replace(SMALL, norm="pre", positions="learned", attention_bias=True),
        replace(SMALL, encoder_layers=1, decoder_layers=1, feed_forward=64),
        replace(SMALL, key_width=6, value_width=10, decoder_heads=2, decoder_feed_forward=20, gated=True),
    ],
    ids=["small", "widths of keys and values apart", "pre-norm", "shallow", "decoder apart"],
)
def test_pytorch_counts_the_same_operations_in_matrix_products(
    config: ModelConfig, batch: Callable[..., tuple[Tensor, ...]]
) -> None:
    sources, targets = [3, 1, 6], [4, 5, 2]
    model, counter = (model_of(config, 40), FlopCounterMode(display=False))
    with counter:
        logits = model.logits(model(*batch(sources, targets)))
        torch.autograd.backward(logits.sum())
    counts = counter.get_flop_counts()["Global"]
    linear = counts[torch.ops.aten.mm] + counts[torch.ops.aten.addmm]  # attention uses other operations
    assert linear == training_flops(config, 40, sum(sources), sum(targets))


def test_source_tokens_do_not_cost_vocabulary_and_costs_of_both_sides_add_up() -> None:
    assert training_flops(SMALL, 99, 10, 0) == training_flops(SMALL, 1, 10, 0)
    total = training_flops(SMALL, 40, 10, 7)
    assert total == training_flops(SMALL, 40, 10, 0) + training_flops(SMALL, 40, 0, 7)


def test_a_shared_matrix_counts_once() -> None:
    with torch.device("meta"):
        tied = parameters(model_of(SMALL, 100))
        twice = parameters(model_of(replace(SMALL, tie="decoder"), 100))
        untied = parameters(model_of(replace(SMALL, tie="none"), 100))
    assert (twice - tied, untied - twice) == (100 * 16, 100 * 16)
