"""A model that copies its input, for all tests of translation."""

from pathlib import Path

import pytest

from nmt_cli.decoding.config import SearchConfig, TranslateConfig
from nmt_cli.translation.loading import Hardware, Loaded, load

GREEDY = TranslateConfig(search=SearchConfig(beam=1))
ON_CPU = Hardware("cpu", threads=1, precision="fp32")


@pytest.fixture(scope="session")
def copier(made_models: Path) -> Loaded:
    """Return a model that copies its input, at most 63 characters at a time."""
    return load([made_models / "copies"], GREEDY, ON_CPU)
