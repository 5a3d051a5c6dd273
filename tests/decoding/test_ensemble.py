"""Ensembles: the mean of the models' predictions of each next token."""

from pathlib import Path

import pytest
import torch

from nmt_cli.checkpoints.model_folder import read_model
from nmt_cli.decoding.ensemble import Ensemble
from nmt_cli.model.transformer import Transformer


@pytest.fixture(scope="module")
def models(made_models: Path) -> list[Transformer]:
    return [read_model(made_models / name).transformer for name in ("copies", "loops")]


LOG_PROBS = torch.tensor([[[0.5, 0.25, 0.25]], [[0.125, 0.75, 0.125]]], dtype=torch.float64).log()


def test_probabilities_are_averaged(models: list[Transformer]) -> None:
    expected = (LOG_PROBS[0].exp() + LOG_PROBS[1].exp()) / 2
    torch.testing.assert_close(Ensemble(models).mean(LOG_PROBS).exp(), expected)


def test_a_step_of_several_models_is_the_mean_of_their_steps(models: list[Transformer]) -> None:
    def step(some: list[Transformer]) -> torch.Tensor:
        ensemble = Ensemble(some)
        with torch.inference_mode():
            caches = ensemble.start([[5, 6], [7]], 1)
            return ensemble.step(torch.tensor([0, 0]), torch.tensor([0, 1]), caches, 1)

    each = [step([model]).exp() for model in models]
    torch.testing.assert_close(step(models).exp(), (each[0] + each[1]) / 2, atol=1e-5, rtol=1e-4)


def test_an_ensemble_has_the_fewest_positions_of_its_models(models: list[Transformer]) -> None:
    assert Ensemble(models).longest == 64
