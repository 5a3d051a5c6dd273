"""The log lines and the events that a run writes after its steps."""

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import torch

from nmt_cli.data.batching.loader import LocalBatch
from nmt_cli.scoring.metrics import Score
from nmt_cli.training.clock import Clock
from nmt_cli.training.position import Position
from nmt_cli.training.tracking.events import Event, Logged, Progress, Validated
from nmt_cli.training.tracking.history import History
from nmt_cli.training.tracking.log import Log
from nmt_cli.training.tracking.recorder import Recorder
from nmt_cli.training.validation.metrics import Judgement
from tests.training.runs import Tiny


@pytest.fixture
def position() -> Position:
    return Position(step=1)


@pytest.fixture
def recorder(tiny: Tiny, position: Position, events: list[Event], path: Path) -> Iterator[Recorder]:
    clock = Clock(position, tiny().training, devices=1)
    with closing(Log(path)) as log:
        yield Recorder(tiny(), position, clock, log, History(), torch.device("cpu"), 30, events.append)


def take(recorder: Recorder, position: Position, nll: float, tokens: int, bad: float = 0.0) -> None:
    batch = LocalBatch(0, 0, [], pairs=2, source_tokens=5, target_tokens=tokens, dropped=0)
    recorder.step(0.5, batch, torch.tensor([2 * nll, nll, 1.0, bad, 1.0]))
    position.step += 1


def test_a_step_that_is_not_finite_does_not_count(
    recorder: Recorder, position: Position, events: list[Event], path: Path
) -> None:
    take(recorder, position, nll=20.0, tokens=10)
    take(recorder, position, nll=float("nan"), tokens=10, bad=1.0)
    recorder.flush(0.0)
    (progress,) = [event for event in events if isinstance(event, Progress)]
    assert (progress.nll, progress.skipped) == (2.0, 1)
    assert [json.loads(line)["nll"] for line in path.read_text().splitlines()] == [2.0, None]


def test_without_a_step_nothing_is_reported(recorder: Recorder, events: list[Event]) -> None:
    assert recorder.flush(0.0) == []
    assert events == []


def test_a_validation_is_logged_and_reported(recorder: Recorder, events: list[Event], path: Path) -> None:
    judgement = Judgement("dev", 1.0, 2.7, 3.0, [Score("bleu", "BLEU", "", 12.5, "", "")], ["a"])
    recorder.validated([judgement], "weights", best=True, seconds=1.0)
    (line,) = map(json.loads, path.read_text().splitlines())
    assert (line["step"], line["valid"], line["bleu"], line["decoded"]) == (1, "dev", 12.5, "weights")
    assert [type(event) for event in events] == [Logged, Validated]
