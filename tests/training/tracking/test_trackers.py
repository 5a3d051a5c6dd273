"""TensorBoard and Weights & Biases get the numbers of the log. The client of the latter is a fake."""

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from nmt_cli.training.tracking.events import Event, Logged, Warned
from nmt_cli.training.tracking.trackers import Scalars
from tests.training.runs import Complaint, Go, lines_of, warnings

TENSORBOARD, WANDB = "training.tensorboard=true", "training.wandb=true"


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
    go(TENSORBOARD, "validation.every_steps=2")
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


@pytest.mark.parametrize("library", ["tensorboard", "wandb"])
def test_a_missing_library_is_one_error_before_the_run_starts(
    go: Go, run: Path, monkeypatch: pytest.MonkeyPatch, complaint: Complaint, library: str
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    message = complaint(f"training.{library}=true")
    assert message.startswith(f"training.{library} needs ") and f"pip install '.[{library}]'" in message
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


class Client:
    """A fake of the parts of the client that are used."""

    def __init__(self) -> None:
        self.begun: list[dict[str, Any]] = []
        self.logged: list[tuple[int, dict[str, float]]] = []
        self.finished = 0
        self.fails = False

    def init(self, **what: Any) -> SimpleNamespace:
        self.begun.append(what)
        return SimpleNamespace(log=self.log, finish=self.finish)

    def log(self, values: dict[str, float], step: int) -> None:
        if self.fails:
            raise ConnectionError("nobody there")
        self.logged.append((step, values))

    def finish(self) -> None:
        self.finished += 1


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Client:
    client = Client()
    monkeypatch.setitem(sys.modules, "wandb", client)
    return client


def test_the_numbers_are_those_of_the_log(go: Go, run: Path, client: Client) -> None:
    go(WANDB, "validation.every_steps=2")
    lines = lines_of(run)
    assert [step for step, _ in client.logged] == [line["step"] for line in lines]
    for line, (_, values) in zip(lines, client.logged, strict=True):
        name, key = ("valid dev/bleu", "bleu") if "valid" in line else ("training/nll", "nll")
        assert values[name] == line[key]
    (begun,) = client.begun
    assert (begun["name"], begun["config"]["model"]["width"], client.finished) == ("run", 16, 1)


def test_a_resumed_run_keeps_its_id(go: Go, client: Client) -> None:
    go(WANDB, "training.max_steps=2")
    go(WANDB)
    assert len({begun["id"] for begun in client.begun}) == 1
    assert [step for step, _ in client.logged] == [1, 2, 3, 4]


def test_a_failure_of_the_client_ends_the_curves_but_not_the_run(go: Go, client: Client) -> None:
    client.fails = True
    complete, events = go(WANDB)
    assert complete
    (warning,) = warnings(events)
    assert "nobody there" in warning
