"""What stays is not looked through for garbage; what comes later is."""

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


def test_what_a_block_made_is_not_looked_through_afterwards() -> None:
    before = gc.get_freeze_count()
    with nothing_to_collect():
        assert not gc.isenabled()
        kept = [Ring() for _ in range(100)]
    assert gc.isenabled()
    assert gc.get_freeze_count() - before >= len(kept)


def test_an_error_leaves_the_collector_as_it_was() -> None:
    with pytest.raises(ValueError, match="x"), nothing_to_collect():
        raise ValueError("x")
    assert gc.isenabled()


def test_a_collector_that_was_off_stays_off() -> None:
    gc.disable()
    try:
        with nothing_to_collect():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
