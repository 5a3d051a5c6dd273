"""What a model costs, counted anew by PyTorch, and what the paper calls its cost."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from nmt_cli.model.config import ModelConfig
from nmt_cli.model.cost import parameters, training_flops
from nmt_cli.model.transformer import Transformer
from nmt_cli.text.vocabulary import Vocabulary

SMALL = ModelConfig(encoder_layers=2, decoder_layers=3, width=16, feed_forward=24, heads=4)


def known(size: int) -> Vocabulary:
    return Vocabulary(("",) * size, end=0, start=0, unknown=1)


def test_a_step_of_the_base_model_takes_9_5e12_operations() -> None:
    assert training_flops(ModelConfig(), 37_000, 25_000, 25_000) == pytest.approx(9.5e12, rel=0.01)


@pytest.mark.parametrize(
    "config",
    [
        SMALL,
        replace(SMALL, key_width=8, value_width=12),
        replace(SMALL, norm="pre", positions="learned", attention_bias=True),
        replace(SMALL, encoder_layers=1, decoder_layers=1, feed_forward=64),
    ],
    ids=["small", "widths of keys and values apart", "pre-norm", "shallow"],
)
def test_pytorch_counts_as_many_operations_in_the_matrix_products_of_a_step(
    config: ModelConfig, batch: Callable[..., tuple[Tensor, ...]]
) -> None:
    sources, targets = [3, 1, 6], [4, 5, 2]
    model, counter = Transformer(config, known(40), known(40), joint=True), FlopCounterMode(display=False)
    with counter:
        logits = model.logits(model(*batch(sources, targets)))
        torch.autograd.backward(logits.sum())
    counts = counter.get_flop_counts()["Global"]
    linear = counts[torch.ops.aten.mm] + counts[torch.ops.aten.addmm]  # attention has others
    assert linear == training_flops(config, 40, sum(sources), sum(targets))


def test_the_source_costs_nothing_in_the_target_and_the_vocabulary_nothing_in_the_source() -> None:
    assert training_flops(SMALL, 99, 10, 0) == training_flops(SMALL, 1, 10, 0)
    both = training_flops(SMALL, 40, 10, 7)
    assert both == training_flops(SMALL, 40, 10, 0) + training_flops(SMALL, 40, 0, 7)


def test_a_matrix_that_serves_three_times_counts_once() -> None:
    with torch.device("meta"):
        tied = parameters(Transformer(SMALL, known(100), known(100), joint=True))
        twice = parameters(Transformer(replace(SMALL, tie="decoder"), known(100), known(100), joint=True))
        untied = parameters(Transformer(replace(SMALL, tie="none"), known(100), known(100), joint=True))
    assert (twice - tied, untied - twice) == (100 * 16, 100 * 16)
