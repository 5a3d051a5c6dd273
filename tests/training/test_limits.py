"""When a run ends, and when a checkpoint or a line is due."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from nmt_cli.training.clock import Clock
from nmt_cli.training.config import TrainConfig
from nmt_cli.training.limits import SAVE, STOP, TIME_UP, Limits
from nmt_cli.training.position import Position
from tests.checks import refusal
from tests.training.runs import Tiny


def limits(
    config: TrainConfig, position: Position, *, stop: bool = False, time_is_up: bool = False
) -> Limits:
    clock = cast(Clock, SimpleNamespace(began_late=False, time_is_up=time_is_up))
    return Limits(config, position, clock, lambda: stop)


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
    due = [step for step in range(1, 10) if limits(by_steps, Position(step=step)).save_due(0)]
    assert due == [4, 8]
    assert limits(by_steps, Position()).requests(True, 1e9) == 0
    assert [limits(tiny(), Position(step=4)).save_due(requests) for requests in (0, STOP, SAVE)] == [0, 0, 1]


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
    monkeypatch.setattr("nmt_cli.training.limits.GIVE_UP_AFTER", 4)
    position = Position()
    ending = limits(tiny(), position)
    for group in groups:
        ending.refuse_divergence(lines(group))
    assert position.bad_in_a_row == count
    message = refusal(ending.refuse_divergence, lines("x" * (4 - count)))
    assert "not finite in 4 steps in a row" in message
