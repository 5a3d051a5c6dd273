"""Permanent objects are excluded from garbage collection, and later ones are not."""

import gc

import pytest

from nmt_cli.runtime.garbage import nothing_to_collect


class Ring:
    def __init__(self) -> None:
        self.itself = self


@pytest.fixture(autouse=True)
def _thawed() -> object:
    yield
    gc.unfreeze()


def test_objects_created_in_the_block_are_excluded_from_collection() -> None:
    before = gc.get_freeze_count()
    with pytest.raises(ValueError, match="x"), nothing_to_collect():
        assert not gc.isenabled()
        rings = [Ring() for _ in range(100)]
        raise ValueError("x")
    assert gc.isenabled()
    assert gc.get_freeze_count() - before >= len(rings)
