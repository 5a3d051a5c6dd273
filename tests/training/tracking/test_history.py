"""The history of a run has each line once, and thinning keeps extreme values."""

import json
import math
from pathlib import Path
from typing import Any

import pytest

from nmt_cli.training.tracking.history import POINTS, RECENT_STEPS, RunHistory, evenly
from nmt_cli.training.tracking.log import read_history

LONG = 5 * POINTS + 7


def step_line(step: int, **changes: object) -> dict[str, Any]:
    return {
        "step": step,
        "epoch": step // 1000,
        "loss": 2.0,
        "nll": 1.0 + 1 / step,
        "gradient_norm": 0.5,
        "learning_rate": step / 1e6,
        "source_tokens": 300,
        "target_tokens": 400,
        "tokens_per_second": 800.0,
        "skipped": False,
        **changes,
    }


def valid_line(step: int, bleu: float, name: str = "dev") -> dict[str, Any]:
    losses = {"nll": 1.0, "perplexity": 2.7, "word_perplexity": 9.0}
    return {"step": step, "valid": name, **losses, "bleu": bleu, "signatures": {"bleu": "x"}}


@pytest.fixture
def history() -> RunHistory:
    """The history of a new run."""
    return RunHistory()


def test_a_new_run_has_an_empty_history(history: RunHistory) -> None:
    assert (history.now.step, history.points, history.validations) == (0, [], [])


def test_each_line_counts_once_in_groups_of_any_size(history: RunHistory) -> None:
    history.add([step_line(1), step_line(2, skipped=True)])
    history.add([])
    history.add([step_line(3)])
    history.add([valid_line(3, 12.5)])
    assert [point.end.step for point in history.points] == [1, 2, 3]
    assert (history.now.source_tokens, history.now.target_tokens, history.now.skipped) == (900, 1200, 1)
    assert history.now.hours == pytest.approx(1.5 / 3600)
    assert [(v.at.step, v.name, v.scores) for v in history.validations] == [(3, "dev", {"bleu": 12.5})]


def test_a_resumed_run_has_the_history_of_its_log(history: RunHistory, tmp_path: Path) -> None:
    lines = [*(step_line(step, loss=1 / step) for step in range(1, 8)), valid_line(7, 1 / 3)]
    (tmp_path / "log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    history.add(lines)
    assert read_history(tmp_path / "log.jsonl") == history
    assert read_history(tmp_path / "not there yet") == RunHistory()


def test_a_long_run_is_thinned_and_its_means_totals_and_spikes_are_not_lost(history: RunHistory) -> None:
    spike = 1234
    history.add(step_line(i, gradient_norm=99.0 if i == spike else 0.5) for i in range(1, LONG + 1))
    points = history.points
    assert POINTS <= len(points) <= 2 * POINTS
    assert sum(point.steps for point in points) == LONG
    assert [point.end.step for point in points] == sorted(point.end.step for point in points)
    assert (points[-1].end, history.now.target_tokens) == (history.now, 400 * LONG)
    assert sum(p.values["nll"].total for p in points) == pytest.approx(
        sum(1.0 + 1 / step for step in range(1, LONG + 1))
    )
    high = [point for point in points if point.values["gradient_norm"].high == 99.0]
    assert len(high) == 1
    assert high[0].end.step - high[0].steps < spike <= high[0].end.step


def test_values_that_are_not_finite_are_left_out_of_the_curves(history: RunHistory) -> None:
    history.add([step_line(1, loss=None, skipped=True)])
    assert [point.values["loss"].count for point in history.points] == [0]
    assert [point.values["nll"].count for point in history.points] == [1]


def test_scores_are_those_of_the_first_set(history: RunHistory) -> None:
    history.add([step_line(1), valid_line(1, 3.0), valid_line(1, 50.0, "other")])
    history.add([step_line(2), valid_line(2, 2.0)])
    assert (history.scores("bleu"), history.scores("ter")) == ([3.0, 2.0], [])


@pytest.mark.parametrize(
    ("count", "most", "expected"),
    [(3, 5, [0, 1, 2]), (5, 5, [0, 1, 2, 3, 4]), (9, 5, [0, 2, 4, 6, 8]), (100, 3, [0, 50, 99])],
)
def test_some_of_many_are_evenly_spread_from_the_first_to_the_last(
    count: int, most: int, expected: list[int]
) -> None:
    assert evenly(range(count), most) == expected


def test_the_training_loss_is_the_mean_over_the_tokens_of_the_latest_steps(history: RunHistory) -> None:
    assert math.isnan(history.losses.nll)
    steps = range(1, RECENT_STEPS + 11)
    history.add(step_line(step, target_tokens=step, loss=float(step), nll=2.0) for step in steps)
    history.add([step_line(999, loss=None, nll=None, skipped=True)])
    latest = steps[-RECENT_STEPS:]
    assert history.losses.smoothed == pytest.approx(sum(step * step for step in latest) / sum(latest))
    assert history.losses.nll == pytest.approx(2.0)
