"""Both searches, for tests of what a search finds."""

import pytest

from tests.searching import SEARCHES, Prepare


@pytest.fixture(scope="session", params=SEARCHES)
def prepare(request: pytest.FixtureRequest) -> Prepare:
    """Return a function that makes a decoder of models: with the plain search, and with the engine."""
    return SEARCHES[request.param]
