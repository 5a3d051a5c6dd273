"""The clock of a run, when it ends, and when a checkpoint is due."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from nmt_cli.training import progress
from nmt_cli.training.config import CheckpointConfig, TrainConfig, TrainingConfig, ValidationConfig
from nmt_cli.training.progress import SAVE, STOP, TIME_UP, Clock, Limits, Position, interval_in_words
from tests.checks import refusal
from tests.training.runs import Tiny


def limits(
    config: TrainConfig,
    position: Position,
    *,
    stop: bool = False,
    time_is_up: bool = False,
    late: bool = False,
) -> Limits:
    clock = cast(Clock, SimpleNamespace(began_late=False, time_is_up=time_is_up))
    return Limits(config, position, clock, lambda: stop, late)


@pytest.mark.parametrize(
    ("settings", "step", "next_epoch", "reached"),
    [
        (["training.max_steps=9"], 8, 5, False),
        (["training.max_steps=9"], 9, 5, True),
        (["training.max_steps=9", "training.max_epochs=2"], 5, 1, False),
        (["training.max_steps=9", "training.max_epochs=2"], 5, 2, True),
    ],
    ids=["steps are left", "no steps", "epochs are left", "no epochs"],
)
def test_a_run_ends_after_its_steps_or_epochs(
    tiny: Tiny, settings: list[str], step: int, next_epoch: int, reached: bool
) -> None:
    assert limits(tiny(*settings), Position(step=step)).reached(next_epoch) is reached


@pytest.mark.parametrize(
    ("first", "unsaved", "stop", "time_is_up", "requests"),
    [
        (True, 599.0, False, False, 0),
        (True, 601.0, False, False, SAVE),
        (True, 601.0, True, True, SAVE | STOP | TIME_UP),
        (False, 601.0, False, True, 0),
        (False, 601.0, True, True, STOP),
    ],
    ids=["nothing", "minutes", "everything", "not the first rank", "a signal"],
)
def test_the_first_rank_requests_by_time_and_each_rank_may_stop(
    tiny: Tiny, first: bool, unsaved: float, stop: bool, time_is_up: bool, requests: int
) -> None:
    run_limits = limits(tiny(), Position(), stop=stop, time_is_up=time_is_up)
    assert run_limits.requests(first, unsaved) == requests


def test_saving_is_by_steps_or_by_minutes(tiny: Tiny) -> None:
    by_steps = tiny("checkpoints.every_steps=4")
    due = [step for step in range(10) if limits(by_steps, Position(step=step)).save_due(0, 0)]
    assert due == [4, 8]
    assert limits(by_steps, Position()).requests(True, 1e9) == 0
    by_minutes = limits(tiny(), Position(step=4))
    assert [by_minutes.save_due(requests, 0) for requests in (0, STOP, SAVE)] == [0, 0, 1]


@pytest.mark.parametrize(
    ("delay", "minutes", "saved"),
    [(0, 2, [5, 10, 15]), (1, 2, [6, 12, 18]), (0, 12, [*range(1, 20)]), (1, 12, [*range(2, 20, 2)])],
    ids=["alone", "ranks", "alone, long steps", "ranks, long steps"],
)
def test_minutes_lead_to_one_save_even_if_ranks_agree_a_step_later(
    tiny: Tiny, delay: int, minutes: int, saved: list[int]
) -> None:
    position, begun, saves = Position(), 0, list[int]()
    run_limits = limits(tiny(), position, late=bool(delay))
    requests = [0] * delay
    for position.step in range(1, 20):
        requests.append(run_limits.requests(True, 60.5 * minutes * (position.step - begun)))
        if run_limits.save_due(requests.pop(0), begun):
            begun = position.step
            saves.append(begun)
    assert saves == saved


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (ValidationConfig(), "every 1,000 steps"),
        (ValidationConfig(every_steps=1_000_000), "every 1,000,000 steps"),
        (ValidationConfig(every_steps=0), ""),
        (CheckpointConfig(), "every 10 minutes"),
        (CheckpointConfig(every_steps=1), "every step"),
    ],
)
def test_an_interval_is_named_with_its_unit(config: ValidationConfig | CheckpointConfig, words: str) -> None:
    assert interval_in_words(config) == words


def lines(skipped: str) -> list[dict[str, Any]]:
    return [{"skipped": mark == "x"} for mark in skipped]


@pytest.mark.parametrize(
    ("groups", "count"),
    [(["xx", "x"], 3), (["xx.", "xx"], 2), (["x.x", "."], 0), ([".", "x"], 1)],
    ids=["over two", "a good one", "none", "the last"],
)
def test_bad_steps_in_a_row_are_counted_over_groups_of_lines(
    tiny: Tiny, groups: list[str], count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nmt_cli.training.progress.GIVE_UP_AFTER", 4)
    position = Position()
    ending = limits(tiny(), position)
    for group in groups:
        ending.refuse_divergence(lines(group))
    assert position.bad_in_a_row == count
    message = refusal(ending.refuse_divergence, lines("x" * (4 - count)))
    assert "not finite in 4 steps in a row" in message


@pytest.fixture
def wait(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Replace the time by one that changes only by waiting."""
    now = [1000.0]
    monkeypatch.setattr(progress, "time", SimpleNamespace(perf_counter=lambda: now[0]))

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


@pytest.mark.parametrize(
    ("start", "now"),
    [
        (Position(step=1000), Position(step=1035, epoch=1, batch=10, seconds=60.0)),
        (Position(epoch=1, batch=5), Position(step=30, epoch=2, batch=10, seconds=60.0)),
        (Position(step=30, epoch=1, batch=5), Position(step=60, epoch=2, batch=10, seconds=60.0)),
    ],
    ids=["steps of another run", "data of another run", "resumed"],
)
def test_an_epoch_is_as_long_as_those_since_the_start_of_the_process(
    wait: Callable[[float], None], start: Position, now: Position
) -> None:
    clock = of(start, max_steps=10_000, max_epochs=4)
    for name in ("step", "epoch", "batch"):
        setattr(start, name, getattr(now, name))
    wait(60.0)
    steps_left = 25 * (4 - now.epoch) - now.batch
    assert clock.seconds_left == pytest.approx(60 / now.step * steps_left)


def test_time_that_is_up_now_was_not_when_the_process_began(wait: Callable[[float], None]) -> None:
    position = Position(step=5, seconds=3500.0)
    clock = of(position, max_hours=1.0)
    assert not clock.time_is_up
    wait(101.0)
    assert (clock.time_is_up, clock.began_late) == (True, False)
    clock.note()
    assert of(position, max_hours=1.0).began_late
    assert not of(position).began_late
