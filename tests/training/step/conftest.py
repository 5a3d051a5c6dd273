"""Fixtures of the tests of steps: a tiny model with the same weights each time."""

from collections.abc import Callable

import pytest
import torch

from nmt_cli.checkpoints.model_folder import Identity
from nmt_cli.model.transformer import Transformer


@pytest.fixture(scope="session")
def new_model(identity: Identity) -> Callable[[], Transformer]:
    """Return a function that builds a model with the same weights each time."""

    def new() -> Transformer:
        torch.manual_seed(1)
        return identity.build()

    return new


@pytest.fixture
def model(new_model: Callable[[], Transformer]) -> Transformer:
    return new_model()
