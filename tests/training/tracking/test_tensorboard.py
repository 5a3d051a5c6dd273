"""TensorBoard files contain the numbers of the log."""

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import numpy as np
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from nmt_cli.training.tracking.events import Event, Logged, Warned
from nmt_cli.training.tracking.tensorboard import Scalars
from tests.training.runs import Complaint, Go, lines_of

ON = "training.tensorboard=true"


def curves_of(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """Return the values that TensorBoard itself reads."""
    accumulator = EventAccumulator(str(folder))
    accumulator.Reload()
    return {
        name: [(event.step, event.value) for event in accumulator.Scalars(name)]
        for name in accumulator.Tags()["scalars"]
    }


def single(value: float) -> float:
    """Return the value in float32, as TensorBoard stores it."""
    return float(np.float32(value))


def test_its_curves_are_those_of_the_log(go: Go, run: Path) -> None:
    go(ON, "validation.every_steps=2")
    lines = lines_of(run)
    curves = curves_of(run / "tensorboard")
    for name in ("loss", "nll", "gradient_norm", "learning_rate", "tokens_per_second", "filler"):
        expected = [(line["step"], single(line[name])) for line in lines if "valid" not in line]
        assert curves[f"training/{name}"] == expected
    for name in ("nll", "perplexity", "bleu", "chrf"):
        expected = [(line["step"], single(line[name])) for line in lines if "valid" in line]
        assert curves[f"valid dev/{name}"] == expected


def test_without_the_setting_there_are_none(go: Go, run: Path) -> None:
    go()
    assert not (run / "tensorboard").exists()


def test_steps_that_are_taken_again_count_once(tmp_path: Path) -> None:
    for last_step, steps, loss in ((0, (1, 2, 3, 4), 1.0), (2, (3, 4, 5), 2.0)):
        scalars = Scalars(tmp_path, last_step, lambda event: None)
        scalars(Logged([{"step": step, "loss": loss} for step in steps]))
        scalars.close()
    assert curves_of(tmp_path) == {"training/loss": [(1, 1.0), (2, 1.0), (3, 2.0), (4, 2.0), (5, 2.0)]}


def test_a_missing_library_is_one_error_before_the_run_starts(
    go: Go, run: Path, monkeypatch: pytest.MonkeyPatch, complaint: Complaint
) -> None:
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    message = complaint(ON)
    assert message.startswith("training.tensorboard needs ") and "pip install '.[tensorboard]'" in message
    assert not run.exists()
    assert go()[0]


def test_a_full_disk_ends_its_curves_and_not_the_run(
    full_disk: Callable[[int], AbstractContextManager[None]], events: list[Event], tmp_path: Path
) -> None:
    scalars = Scalars(tmp_path, 0, events.append)
    with full_disk(500):
        for step in range(1, 20):
            scalars(Logged([{"step": step, "loss": 1.0}]))
    scalars.close()
    assert [type(event) for event in events] == [Warned]
