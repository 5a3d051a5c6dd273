"""The clock of a run: the duration of all parts, device seconds and the time left."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from nmt_cli.training import clock as clock_module
from nmt_cli.training.clock import Clock
from nmt_cli.training.config import TrainingConfig
from nmt_cli.training.position import Position


@pytest.fixture
def wait(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Replace the time by one that changes only by waiting."""
    now = [1000.0]
    monkeypatch.setattr(clock_module, "time", SimpleNamespace(perf_counter=lambda: now[0]))

    def wait(seconds: float) -> None:
        now[0] += seconds

    return wait


def of(position: Position, devices: int = 1, **limits: Any) -> Clock:
    return Clock(position, TrainingConfig(**limits), devices)


def test_each_part_of_a_run_counts_with_its_own_devices(wait: Callable[[float], None]) -> None:
    position = Position()
    for devices, seconds in ((8, 100.0), (2, 50.0)):
        clock = of(position, devices)
        wait(seconds)
        clock.note()
    assert (position.seconds, position.device_seconds) == (150.0, 900.0)
    wait(10.0)
    assert clock.spent == (160.0, 920.0)
    assert of(position, 3).spent == (150.0, 900.0)


@pytest.mark.parametrize(
    ("position", "limits", "left"),
    [
        (Position(step=30, seconds=60.0), {"max_steps": 100}, 140.0),
        (Position(step=100, seconds=60.0), {"max_steps": 100}, 0.0),
        (Position(step=30, epoch=0, batch=30, seconds=60.0), {"max_steps": 100, "max_epochs": 2}, 140.0),
        (Position(step=30, epoch=1, batch=5, seconds=60.0), {"max_steps": 100, "max_epochs": 2}, 40.0),
        (Position(step=30, seconds=60.0), {"max_steps": 100, "max_hours": 0.025}, 30.0),
        (Position(step=30, seconds=99.0), {"max_steps": 100, "max_hours": 0.025}, 0.0),
    ],
    ids=["steps", "done", "first epoch", "second epoch", "hours", "time is up"],
)
def test_the_time_left_is_by_the_pace_of_the_whole_run_to_the_limit_that_comes_first(
    wait: Callable[[float], None], position: Position, limits: dict[str, Any], left: float
) -> None:
    assert of(position, **limits).seconds_left == pytest.approx(left)


def test_time_that_is_up_now_was_not_when_the_process_began(wait: Callable[[float], None]) -> None:
    position = Position(step=5, seconds=3500.0)
    clock = of(position, max_hours=1.0)
    assert not clock.time_is_up
    wait(101.0)
    assert (clock.time_is_up, clock.began_late) == (True, False)
    clock.note()
    assert of(position, max_hours=1.0).began_late
    assert not of(position).began_late
