"""Every variant of the model in training and in step-by-step decoding.

The variants are read from `ModelConfig`, so a new choice is tested without a change of this file.
"""

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any, get_args, get_type_hints

import pytest
import torch

from nmt_cli.config import settings_of_kind
from nmt_cli.model.config import ModelConfig
from nmt_cli.model.transformer import Transformer
from nmt_cli.ragged import flat

SMALL = ModelConfig(encoder_layers=2, decoder_layers=2, width=32, feed_forward=48, heads=4)
TRAINING_ONLY = settings_of_kind(ModelConfig, "training only")
SENTENCES = [[3, 4, 5, 0], [2, 0], [7, 6, 5, 4, 3, 2, 0]]
TARGETS = [[5, 6, 0], [2, 3, 4, 0], [9, 0]]
CPU = torch.device("cpu")


def choices() -> dict[str, Any]:
    """Return every value of every setting of the model that is a choice, by `name=value`."""
    hints = get_type_hints(ModelConfig)
    return {
        f"{field.name}={value}": {field.name: value}
        for field in fields(ModelConfig)
        if field.name not in TRAINING_ONLY
        for value in (get_args(hints[field.name]) or ((True, False) if hints[field.name] is bool else ()))
    }


VARIANTS = choices() | {
    "decoder apart": {"decoder_heads": 8, "decoder_feed_forward": 80},
    "decoder apart, rotary": {"decoder_heads": 2, "positions": "rotary"},
    "decoder apart, relative": {"decoder_heads": 2, "positions": "relative"},
}


def test_the_choices_include_the_known_variants() -> None:
    assert {"norm=pre", "decoder_history=ssru", "positions=learned", "attention_bias=True"} <= VARIANTS.keys()


@torch.inference_mode()
@pytest.mark.parametrize("variant", VARIANTS)
def test_every_variant_gives_the_same_logits_in_training_and_decoding(
    variant: str, build: Callable[..., Transformer]
) -> None:
    model = build(replace(SMALL, **VARIANTS[variant]))
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    source, target = flat(SENTENCES, CPU), flat(TARGETS, CPU)
    expected_TV = model.double().logits(model(source[0], target[0], source[1], target[1]))
    for number, part in enumerate(target[1].slices()):
        tokens = target[0][part]
        alone = flat([SENTENCES[number]], CPU)
        cache = model.begin(*alone, 1)
        before = torch.zeros(1, dtype=torch.int64)
        for age, token in enumerate(tokens):
            logits_V = model.logits(model.step(before, torch.zeros(1, dtype=torch.int64), cache, age + 1))
            cache.reorder(torch.zeros(1, 1, dtype=torch.int64), torch.ones(1, 1, dtype=torch.bool))
            expected_V = expected_TV[part][age]
            assert (logits_V[0] - expected_V).abs().max() < 1e-9 * expected_V.abs().max().clamp(min=1)
            before = token[None]
