"""Helper threads: they work while awake, are woken when asleep, and never delay the caller."""

import threading
import time

import pytest

from nmt_cli.runtime.kernels import standby

PATIENCE = 60


@pytest.fixture(autouse=True)
def _alone_again() -> "object":
    yield
    standby.call(0)


def test_work_is_done_by_all_called_helpers() -> None:
    met = threading.Barrier(3)
    standby.call(2)
    standby.beside(lambda: met.wait(PATIENCE))


@pytest.mark.parametrize("turns", [1, 10_000])
def test_a_sleeping_helper_is_woken(turns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(standby, "TURNS", turns)
    standby.call(1)
    for pause in (0.0, 0.001, 0.05, 0.0, 0.05):
        met = threading.Barrier(2)
        time.sleep(pause)
        standby.beside(lambda: met.wait(PATIENCE))  # noqa: B023 - it is done before the next one is made


@pytest.mark.parametrize("helpers", [0, 5])
def test_without_new_threads_only_the_caller_does_the_work(
    helpers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)
    done: list[int] = []
    standby.call(helpers)
    standby.beside(lambda: done.append(threading.get_ident()))
    assert done == [threading.get_ident()]
