"""Between two checks for finished sentences, the host does not wait for the device."""

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import replace
from itertools import count
from typing import Any

import numpy as np
import pytest
import torch
from torch._subclasses.fake_tensor import FakeCopyMode, FakeTensorMode
from torch.utils._python_dispatch import _pop_mode_temporarily

from nmt_cli.attention import attention
from nmt_cli.decoding.batch import LOOK_EVERY
from nmt_cli.decoding.config import SearchConfig
from nmt_cli.decoding.ensemble import Ensemble
from nmt_cli.decoding.search import steppers
from nmt_cli.decoding.search.hypotheses import Hypothesis, Sentence
from nmt_cli.decoding.search.search import Search
from nmt_cli.decoding.search.steppers import Stepper
from nmt_cli.model.config import ModelConfig
from nmt_cli.model.transformer import Transformer
from tests.launches import Strict
from tests.model.models import model_of as random_model

TINY = ModelConfig(encoder_layers=1, decoder_layers=2, width=8, heads=2, feed_forward=16, norm="pre")
SHAPES = {
    "self-attention": TINY,
    "windows": replace(TINY, window=4),
    "learned": replace(TINY, positions="learned", longest=90),
    "ssru": replace(TINY, decoder_history="ssru"),
}
CONFIGS = {
    "beam 4": SearchConfig(beam=4, n_best=2, cap_extra=20),
    "beam 1": SearchConfig(beam=1, min_length=3, cap_extra=20),
    "stopping early": SearchConfig(beam=3, stop_early=True, cap_extra=20),
}


@pytest.fixture(autouse=True)
def _as_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention, "PART", {})


def model_of(shape: ModelConfig) -> Transformer:
    torch.manual_seed(5)
    return random_model(shape, 12).eval()


def search_of(model: Transformer, config: SearchConfig) -> Search:
    return Search(Ensemble([model]), config, LOOK_EVERY)


def sentences(keys: Sequence[int]) -> list[Sentence]:
    return [
        Sentence(key, [2 + (key + i) % 9 for i in range(1 + key % 5)], prefix=[1, 7] if key % 3 == 1 else ())
        for key in keys
    ]


@pytest.mark.parametrize("config", CONFIGS)
@pytest.mark.parametrize("shape", SHAPES)
def test_between_two_checks_nothing_waits_for_the_device(
    shape: str, config: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    step, copy, taken = Stepper.step, steppers._on, 0

    def strictly(self: Stepper, *arguments: object) -> None:
        nonlocal taken
        with Strict():
            step(self, *arguments)  # type: ignore[arg-type]
        taken += 1

    def copied(device: torch.device, array: np.ndarray) -> torch.Tensor:
        with _pop_mode_temporarily():  # a copy from the host does not wait
            return copy(device, array)

    monkeypatch.setattr(Stepper, "step", strictly)
    monkeypatch.setattr(steppers, "_on", copied)
    search, mode = search_of(model_of(SHAPES[shape]), CONFIGS[config]), FakeTensorMode()
    search.join(sentences(range(5)))
    for cache in search._caches:  # a fake tensor has no values
        cache.get_ready()
    with FakeCopyMode(mode):
        search = deepcopy(search)
    with mode:
        for _ in range(LOOK_EVERY - 1):
            assert not search.step()
    assert taken == LOOK_EVERY - 1


def test_a_sentence_whose_log_probabilities_overflow_has_no_hypotheses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    step, overflows = Ensemble.step, False

    def overflowing(self: Ensemble, *arguments: Any) -> torch.Tensor:
        log_probs_RV = step(self, *arguments)
        if overflows:
            log_probs_RV[5] = torch.nan  # slot 1 of sentence 1
        return log_probs_RV

    monkeypatch.setattr(Ensemble, "step", overflowing)
    results = []
    for overflowing_step in (-1, 6):
        search, done = search_of(model_of(TINY), CONFIGS["beam 4"]), dict[int, list[Hypothesis]]()
        search.join(sentences(range(3)))
        for number in count():
            overflows = number == overflowing_step
            done |= {sentence.key: hypotheses for sentence, hypotheses in search.step()}
            if len(done) == 3:
                break
        results.append(done)
    assert all(results[0].values())
    assert results[1] == results[0] | {1: []}
