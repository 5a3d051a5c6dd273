"""A worker in a process of its own: the same work, one thread, and an end that is noticed."""

import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from nmt_cli.checkpoints.model_folder import read_model
from nmt_cli.decoding.config import SearchConfig
from nmt_cli.decoding.engine import ListQueue
from nmt_cli.decoding.hypotheses import Hypothesis, Sentence
from nmt_cli.decoding.lines.worker import translate_turns
from nmt_cli.decoding.lines.worker_process import worker_process
from nmt_cli.errors import UserError
from nmt_cli.model.transformer import Transformer

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are forked on Linux only")


@pytest.fixture(scope="module")
def model(made_models: Path) -> Transformer:
    """What gives back its input."""
    return read_model(made_models / "copies").transformer


class Turn(ListQueue):
    """Keeps what is found."""

    def __init__(self, search: SearchConfig, sources: Sequence[Sequence[int]]) -> None:
        super().__init__([Sentence(key, tokens) for key, tokens in enumerate(sources)])
        self.search = search
        self.found: dict[int, list[Hypothesis] | None] = {}
        self.steps = 0

    def finish(self, sentence: Sentence, hypotheses: list[Hypothesis] | None) -> None:
        """See `nmt_cli.decoding.lines.worker.Turn`."""
        self.found[sentence.key] = hypotheses

    def before_step(self) -> None:
        """See `nmt_cli.decoding.lines.worker.Turn`."""
        self.steps += 1


def turns() -> list[Turn]:
    sources = [[5, 6, 7], [8], [9, 10, 11, 12]]
    return [Turn(SearchConfig(beam=1), sources), Turn(SearchConfig(beam=2, n_best=2, rows=2), sources)]


def test_it_finds_what_is_found_without_a_process_turn_after_turn(model: Transformer) -> None:
    here, there = turns(), turns()
    for work in (here, there):
        taking = iter(work)
        if work is here:
            translate_turns([model], lambda taking=taking: next(taking, None))  # type: ignore[misc]
        else:
            with worker_process([model]) as process:
                process.translate_turns(lambda taking=taking: next(taking, None))  # type: ignore[misc]
    for mine, its in zip(here, there, strict=True):
        assert {key: [one.tokens for one in some or []] for key, some in mine.found.items()} == {
            key: [one.tokens for one in some or []] for key, some in its.found.items()
        }
        assert mine.steps == its.steps > 0
        assert its.found[0] and its.found[0][0].tokens == [5, 6, 7]


def test_what_goes_wrong_there_is_raised_here(model: Transformer, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise ValueError(f"in another process: {os.getpid() != mine}")

    mine = os.getpid()
    monkeypatch.setattr(Transformer, "encode", fails)
    taking = iter(turns())
    with worker_process([model]) as process, pytest.raises(ValueError, match="in another process: True"):
        process.translate_turns(lambda: next(taking, None))


@pytest.mark.parametrize(
    ("number", "told"),
    [(signal.SIGKILL, "was killed, most likely for want of memory"), (signal.SIGTERM, "crashed, with exit")],
)
def test_its_death_is_an_error_that_says_how(model: Transformer, number: int, told: str) -> None:
    class Deadly(Turn):
        """Ends the process in the midst of its work."""

        def before_step(self) -> None:
            assert process.process.pid
            os.kill(process.process.pid, number)

    with worker_process([model]) as process, pytest.raises(UserError, match=told):
        process.translate_turns(lambda: Deadly(SearchConfig(), [[5, 6]]))


def test_an_end_of_the_work_in_the_parent_kills_it(model: Transformer) -> None:
    class Enough(Exception):
        """Nobody wants more."""

    class Last(Turn):
        """Is not wanted any more when its first step begins."""

        def before_step(self) -> None:
            raise Enough

    with pytest.raises(Enough), worker_process([model]) as process:
        process.translate_turns(lambda: Last(SearchConfig(), [[5, 6]]))
    assert process.process.exitcode == -signal.SIGKILL
