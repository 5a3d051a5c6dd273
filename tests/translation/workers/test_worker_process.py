"""A worker in a process of its own: the same work, one thread, and an end that is noticed."""

import os
import signal
import socket
import sys
from collections.abc import Collection, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
import torch

from nmt_cli.checkpoints.model_folder import read_model
from nmt_cli.decoding.config import SearchConfig
from nmt_cli.decoding.engine import ListQueue
from nmt_cli.decoding.ensemble import Ensemble
from nmt_cli.decoding.search.hypotheses import Hypothesis, Sentence
from nmt_cli.errors import UserError
from nmt_cli.model.transformer import Transformer
from nmt_cli.translation.workers.counts import Counts
from nmt_cli.translation.workers.worker import translate_turns
from nmt_cli.translation.workers.worker_process import MAX_IDLE_DEATHS, WorkerProcess

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are forked on Linux only")


@pytest.fixture(scope="module")
def model(made_models: Path) -> Transformer:
    """What gives back its input."""
    return read_model(made_models / "copies").transformer


@contextmanager
def worker_process(
    model: Transformer, counts: Counts | None = None, threads: int = 1
) -> Iterator[WorkerProcess]:
    with closing(WorkerProcess([model], counts or Counts(), threads)) as process:
        yield process


class Turn(ListQueue):
    """Keeps what is found."""

    def __init__(self, search: SearchConfig, sources: Sequence[Sequence[int]]) -> None:
        super().__init__([Sentence(key, tokens) for key, tokens in enumerate(sources)])
        self.search = search
        self.found: dict[int, list[Hypothesis] | None] = {}
        self.died: list[tuple[int, str]] = []

    def finish(self, sentence: Sentence, hypotheses: list[Hypothesis] | None) -> None:
        """See `nmt_cli.translation.workers.worker.Turn`."""
        self.found[sentence.key] = hypotheses

    def gone(self, running: Sequence[Sentence]) -> Collection[int]:
        """See `nmt_cli.translation.workers.worker.Turn`."""
        return ()

    def alone(self, count: int) -> bool:
        """See `nmt_cli.translation.workers.worker.Turn`."""
        raise NotImplementedError  # a process knows by itself

    def lost(self, sentences: Sequence[Sentence], how: str) -> None:
        """See `nmt_cli.translation.workers.worker.Turn`."""
        self.died += [(sentence.key, how) for sentence in sentences]
        self.put_back(sentences)


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
            with worker_process(model) as process:
                process.translate_turns(lambda taking=taking: next(taking, None))  # type: ignore[misc]
    for mine, its in zip(here, there, strict=True):
        assert {key: [one.tokens for one in some or []] for key, some in mine.found.items()} == {
            key: [one.tokens for one in some or []] for key, some in its.found.items()
        }
        assert its.found[0] and its.found[0][0].tokens == [5, 6, 7]


def test_what_goes_wrong_there_is_raised_here(model: Transformer, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise ValueError(f"in another process: {os.getpid() != mine}")

    mine = os.getpid()
    monkeypatch.setattr(Transformer, "encode", fails)
    taking = iter(turns())
    with worker_process(model) as process, pytest.raises(ValueError, match="in another process: True"):
        process.translate_turns(lambda: next(taking, None))


@pytest.mark.parametrize(
    ("number", "told"),
    [
        (signal.SIGKILL, "was killed, most likely because memory ran out"),
        (signal.SIGTERM, "crashed with exit"),
    ],
)
def test_after_its_death_another_translates_what_it_had(model: Transformer, number: int, told: str) -> None:
    class Deadly(Turn):
        """Ends the first two processes in the midst of their work."""

        def take(self, slots: int, tokens: int, running: Sequence[Sentence]) -> list[Sentence]:
            taken = super().take(slots, tokens, running)
            if process.restarts < 2:
                assert process.process.pid
                os.kill(process.process.pid, number)
            return taken

    turn = Deadly(SearchConfig(beam=2), [[5, 6], [7]])
    taking = iter([turn, turn, turn])
    with worker_process(model) as process:
        process.translate_turns(lambda: next(taking, None))
        assert process.restarts == 2
    assert sorted(key for key, _ in turn.died) == [0, 0, 1, 1]
    assert all(told in how for _, how in turn.died)
    assert {key: [*(found or [])[0].tokens] for key, found in turn.found.items()} == {0: [5, 6], 1: [7]}


def test_processes_that_die_before_they_work_are_not_replaced_for_ever(
    model: Transformer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Ensemble, "of", lambda *_: os.kill(os.getpid(), signal.SIGKILL))
    with (
        worker_process(model) as process,
        pytest.raises(UserError, match="most likely because memory ran out"),
    ):
        process.translate_turns(lambda: Turn(SearchConfig(), [[5, 6]]))
    assert process.restarts == MAX_IDLE_DEATHS - 1


def test_one_that_is_killed_while_it_waits_is_replaced_however_often(model: Transformer) -> None:
    def after_its_death() -> Turn | None:
        process.process.kill()
        process.process.join()
        return Turn(SearchConfig(), [[5, 6]]) if process.restarts < 2 * MAX_IDLE_DEATHS else None

    with worker_process(model) as process:
        process.translate_turns(after_its_death)


def test_what_nobody_wants_any_more_leaves_its_batch(model: Transformer) -> None:
    counts = Counts()
    asked: list[int] = []

    class Left(Turn):
        """The first sentence is given up once it runs."""

        def take(self, slots: int, tokens: int, running: Sequence[Sentence]) -> list[Sentence]:
            counts.departures.increase()
            return super().take(slots, tokens, running)

        def gone(self, running: Sequence[Sentence]) -> Collection[int]:
            asked.append(len(running))
            return [place for place, sentence in enumerate(running) if sentence.key == 0]

    turn = Left(SearchConfig(beam=2), [[5] * 20, [6] * 30, [7] * 10])
    taking = iter([turn])
    with worker_process(model, counts) as process:
        process.translate_turns(lambda: next(taking, None))
    assert asked[0] == 3
    assert sorted(turn.found) == [1, 2]


@pytest.mark.parametrize("comes", [True, False])
def test_the_parent_is_asked_for_more_only_where_something_came(model: Transformer, comes: bool) -> None:
    counts = Counts()
    asked: list[int] = []

    class Slow(Turn):
        """Another sentence comes while the first is at its second step."""

        def take(self, slots: int, tokens: int, running: Sequence[Sentence]) -> list[Sentence]:
            asked.append(len(running))
            counts.departures.increase()
            return super().take(slots, tokens, running)

        def gone(self, running: Sequence[Sentence]) -> Collection[int]:
            if comes and len(asked) == 2:
                self.put_back([Sentence(1, [7] * 3)])
                counts.arrivals.increase()
            return []

    turn = Slow(SearchConfig(beam=2), [[6] * 30])
    taking = iter([turn])
    with worker_process(model, counts) as process:
        process.translate_turns(lambda: next(taking, None))
    assert sorted(turn.found) == ([0, 1] if comes else [0])
    assert len(asked) <= (6 if comes else 3)


@pytest.mark.parametrize(
    ("unfinished", "sources", "threads"),
    [(1, [[5]], 2), (2, [[5]], 1), (2, [[5], [6]], 2), (40, [[5]] * 40, 1)],
)
def test_idle_workers_help_with_few_sentences_that_are_all_there_are(
    unfinished: int,
    sources: list[list[int]],
    threads: int,
    model: Transformer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def step(*inputs: object) -> None:
        torch.mm(torch.ones(2000, 500), torch.ones(500, 500))  # whoever waits for lost threads never ends
        raise ValueError(f"in {torch.get_num_threads()} threads")

    torch.mm(torch.ones(2000, 500), torch.ones(500, 500))
    for name in ("step", "logits"):
        monkeypatch.setattr(Ensemble, name, step)
    counts = Counts()
    counts.unfinished.value = unfinished
    turn = Turn(SearchConfig(beam=2), sources)
    with (
        worker_process(model, counts, 2) as process,
        pytest.raises(ValueError, match=f"in {threads} threads"),
    ):
        process.translate_turns(lambda: turn)


def test_a_connection_that_the_parent_closes_is_closed(model: Transformer) -> None:
    here, there = socket.socketpair()
    with worker_process(model) as process:
        here.settimeout(60)
        taking = iter(turns())
        process.translate_turns(lambda: next(taking, None))
        there.close()
        assert here.recv(1) == b""
    here.close()


def test_an_end_of_the_work_in_the_parent_kills_it(model: Transformer) -> None:
    class Enough(Exception):
        """Nobody wants more."""

    class Last(Turn):
        """Is not wanted any more when it begins."""

        def take(self, slots: int, tokens: int, running: Sequence[Sentence]) -> list[Sentence]:
            raise Enough

    with pytest.raises(Enough), worker_process(model) as process:
        process.translate_turns(lambda: Last(SearchConfig(), [[5, 6]]))
    assert process.process.exitcode == -signal.SIGKILL
