"""Scores of given translations, against one step per token."""

from pathlib import Path

import pytest
import torch

from nmt_cli.checkpoints.model_folder import read_model
from nmt_cli.decoding import forced
from nmt_cli.decoding.ensemble import Ensemble
from nmt_cli.decoding.forced import Pair, token_scores
from nmt_cli.model.transformer import Transformer

PAIRS: list[Pair] = [([5, 6, 7], [6, 5]), ([4], []), ([7, 7], [9, 4, 5, 6, 8]), ([5, 6, 7], [6, 5])]


@pytest.fixture(scope="module")
def models(made_models: Path) -> list[Transformer]:
    return [read_model(made_models / name).transformer for name in ("copies", "loops")]


def one_by_one(ensemble: Ensemble, pair: Pair) -> list[float]:
    """Return the scores of a search that is forced to take the tokens."""
    source, target = pair
    end = ensemble.models[0].target_vocabulary.end
    actual = []
    with torch.inference_mode():
        caches = ensemble.start([source], 1)
        previous = end  # these models start with the end token
        for token in [*target, end]:
            log_probs = ensemble.step(torch.tensor([previous]), torch.tensor([0]), caches, len(target) + 1)
            actual.append(float(log_probs[0, token]))
            previous = token
    return actual


@pytest.mark.parametrize("count", [1, 2])
def test_token_scores_equal_those_of_a_forced_search(models: list[Transformer], count: int) -> None:
    ensemble = Ensemble(models[:count])
    for scores, pair in zip(token_scores(ensemble, PAIRS), PAIRS, strict=True):
        assert scores == pytest.approx(one_by_one(ensemble, pair), rel=1e-5, abs=1e-4)


def test_pairs_keep_their_order_in_batches_of_any_size(
    models: list[Transformer], monkeypatch: pytest.MonkeyPatch
) -> None:
    ensemble = Ensemble(models[:1])
    together = token_scores(ensemble, PAIRS)
    monkeypatch.setattr(forced, "TOKENS", 1)
    for few, many in zip(token_scores(ensemble, PAIRS), together, strict=True):
        assert few == pytest.approx(many, rel=1e-5, abs=1e-5)
    assert token_scores(ensemble, []) == []
