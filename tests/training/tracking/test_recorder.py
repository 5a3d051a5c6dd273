"""The log lines and the events that a run writes after its steps."""

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import torch

from nmt_cli.data.batching.loader import LocalBatch
from nmt_cli.scoring.measures import Score
from nmt_cli.training.progress import Clock, Position
from nmt_cli.training.tracking.events import Event, Logged, Progress, Validated
from nmt_cli.training.tracking.history import RunHistory
from nmt_cli.training.tracking.log import Log
from nmt_cli.training.tracking.recorder import LeftOut, Recorder
from nmt_cli.training.validation.judge import Judgement
from tests.training.runs import Tiny, warnings


@pytest.fixture
def position() -> Position:
    return Position(step=1)


@pytest.fixture
def recorder(tiny: Tiny, position: Position, events: list[Event], path: Path) -> Iterator[Recorder]:
    clock = Clock(position, tiny().training, devices=1)
    with closing(Log(path, RunHistory(), events.append)) as log:
        yield Recorder(tiny(), 30, position, clock, log, events.append)


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


@pytest.mark.parametrize(
    ("seen", "message"),
    [
        ([(0, 0), (1, 0)], []),
        ([(0, 3), (0, 7)], ["7"]),
        ([(0, 3), (0, 7), (1, 2)], ["7"]),
        ([(0, 7), (1, 2), (1, 7), (2, 1)], ["7"]),
        ([(0, 7), (1, 9), (2, 1)], ["7", "9"]),
        ([(4, 2000)], ["2,000"]),
    ],
    ids=str,
)
@pytest.mark.parametrize("sampled", [False, True])
def test_the_number_of_left_out_pairs_is_reported_once_at_the_end_of_an_epoch(
    tiny: Tiny, events: list[Event], seen: list[tuple[int, int]], message: list[str], sampled: bool
) -> None:
    config = tiny("batch.longest=20", *(["sampling.source=0.1"] if sampled else []))
    left_out = LeftOut(config, events.append)
    for epoch, count in seen:
        left_out.seen(epoch, count)
    left_out.end()
    texts = warnings(events)
    assert [text.split(" pairs")[0] for text in texts] == message
    assert all(("segments them" in text) is sampled for text in texts)
    assert all("more than 20 tokens on a side and are left out (batch.longest)" in text for text in texts)


@pytest.mark.parametrize(
    ("longest", "tokens", "message"),
    [
        (20, 30, "20 tokens on a side and are left out (batch.longest)"),
        (30, 20, "20 tokens on a side and are left out (batch.tokens)"),
    ],
)
def test_the_limit_that_left_them_out_is_named(
    tiny: Tiny, events: list[Event], longest: int, tokens: int, message: str
) -> None:
    left_out = LeftOut(tiny(f"batch.longest={longest}", f"batch.tokens={tokens}"), events.append)
    left_out.seen(0, 5)
    left_out.end()
    (text,) = warnings(events)
    assert text.endswith(message)
