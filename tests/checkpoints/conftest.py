"""Fixtures for the tests of checkpoints: a tiny model for the toy dataset, and a checkpoint of it."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from nmt_cli.checkpoints.model_folder import Identity, weights
from nmt_cli.checkpoints.run_folder import Checkpoint, save_checkpoint
from nmt_cli.data.dataset import TOKENIZERS
from nmt_cli.model.config import ModelConfig
from nmt_cli.model.transformer import Transformer
from nmt_cli.text.tokenizers import load_tokenizers

MODEL = ModelConfig(encoder_layers=1, decoder_layers=1, width=16, heads=2, feed_forward=32)


@pytest.fixture(scope="session")
def identity(toy_dataset: Path) -> Identity:
    """Return the identity of a model with a few thousand weights."""
    trained_on = {"inputs": ["a.en"], "files": {"train.source.tokens.npy": "00"}}
    return Identity(MODEL, load_tokenizers(toy_dataset / TOKENIZERS), trained_on)


@pytest.fixture
def model(identity: Identity) -> Transformer:
    torch.manual_seed(5)
    return identity.build()


@pytest.fixture
def checkpoint(model: Transformer) -> Callable[[int], Checkpoint]:
    """Return a function that makes a checkpoint of a step."""

    def checkpoint(step: int) -> Checkpoint:
        optimizer = {f"{key}.exp_avg": torch.full_like(value, step) for key, value in weights(model).items()}
        progress = {"epoch": 3, "batch": 7, "scores": {"2": 0.1 + 0.2}}
        return Checkpoint(step, weights(model), optimizer, progress)

    return checkpoint


@pytest.fixture
def save(
    tmp_path: Path, identity: Identity, checkpoint: Callable[[int], Checkpoint]
) -> Callable[[int], Path]:
    """Return a function that saves a checkpoint of a step in the run folder `tmp_path`."""
    return lambda step: save_checkpoint(tmp_path, identity, checkpoint(step))
