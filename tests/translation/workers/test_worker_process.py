"""Worker processes: the same translations, threads, deaths and errors."""

import os
import signal
import socket
import sys
from collections.abc import Collection, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch

from nmt_cli.checkpoints.model_folder import read_model
from nmt_cli.decoding.batch import ListQueue
from nmt_cli.decoding.config import SearchConfig
from nmt_cli.decoding.ensemble import Ensemble
from nmt_cli.decoding.search.hypotheses import Hypothesis, Sentence
from nmt_cli.engine.decoder import Decoder
from nmt_cli.engine.search import EngineSearch
from nmt_cli.errors import UserError
from nmt_cli.runtime.processes import StartMethod
from nmt_cli.translation.loading import models_on
from nmt_cli.translation.workers.worker import Counts, Load, translate_turns
from nmt_cli.translation.workers.worker_process import MAX_IDLE_DEATHS, Lost, WorkerProcess

Way = tuple[Load, StartMethod]

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are forked on Linux only")


@pytest.fixture(scope="module")
def decoder(made_models: Path) -> Decoder:
    """Return a model that copies its input."""
    return Decoder.of([read_model(made_models / "copies").transformer])


@pytest.fixture(params=["fork", "spawn"])
def way(request: pytest.FixtureRequest, made_models: Path, decoder: Decoder) -> Way:
    """Return how a process starts and gets the model: forked as for a CPU, or spawned as for a GPU."""
    spawned = partial(models_on, [made_models / "copies"], torch.device("cpu"), "fp32")
    return (spawned, "spawn") if request.param == "spawn" else forked(decoder)


def forked(decoder: Decoder) -> Way:
    return (lambda: decoder), "fork"


@contextmanager
def worker_process(
    way: Way, counts: Counts | None = None, lost: Lost = lambda *_: None, threads: int = 1
) -> Iterator[WorkerProcess]:
    with closing(WorkerProcess(*way, counts or Counts(), lost, threads)) as process:
        yield process


SOURCES = [[5, 6, 7], [8], [9, 10, 11, 12]]
GREEDY, BEAM = SearchConfig(beam=1), SearchConfig(beam=2)


class Turns(ListQueue):
    """A queue that offers the same sentences in one turn for each of some settings."""

    def __init__(
        self, *searches: SearchConfig, sources: Sequence[Sequence[int]] = SOURCES, count: int = 1
    ) -> None:
        """Offer `count` turns for each of `searches`."""
        super().__init__([])
        self._searches, self._sources = iter(searches * count), sources
        self._turns = 0

    def next_search(self) -> SearchConfig | None:
        if search := next(self._searches, None):
            self.put_back(
                [Sentence(key, tokens, request=self._turns) for key, tokens in enumerate(self._sources)]
            )
            self._turns += 1
        return search

    def finish(self, sentence: Sentence, hypotheses: list[Hypothesis] | None) -> None:
        """Store hypotheses by the number of the turn, and then by the key."""
        super().finish(replace(sentence, key=100 * sentence.request + sentence.key), hypotheses)

    @property
    def tokens(self) -> dict[int, list[list[int]]]:
        return {key: [[*one.tokens] for one in ranked or []] for key, ranked in self.hypotheses.items()}


def translate(process: WorkerProcess, queue: Turns) -> None:
    """Translate all turns of `queue` with the process."""
    process.translate_turns(queue.next_search, queue)


def test_a_process_finds_the_same_hypotheses_as_a_thread(way: Way) -> None:
    searches = (GREEDY, SearchConfig(beam=2, n_best=2, rows=2))
    here, there = Turns(*searches), Turns(*searches)
    translate_turns(way[0], here.next_search, here, Counts())
    with worker_process(way) as process:
        translate(process, there)
    assert there.tokens == here.tokens
    assert there.tokens.keys() == {0, 1, 2, 100, 101, 102}
    assert all(there.tokens[key][0] == [5, 6, 7] for key in (0, 100))


def test_an_error_in_the_process_is_raised_in_the_parent(
    decoder: Decoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise ValueError(f"in another process: {os.getpid() != mine}")

    mine = os.getpid()
    monkeypatch.setattr(EngineSearch, "join", fails)
    with (
        worker_process(forked(decoder)) as process,
        pytest.raises(ValueError, match="in another process: True"),
    ):
        translate(process, Turns(GREEDY))


@pytest.mark.parametrize(
    ("way", "number", "message"),
    [
        ("fork", signal.SIGTERM, "crashed with exit"),
        ("fork", signal.SIGKILL, "was killed, most likely because memory ran out"),
        ("spawn", signal.SIGKILL, "was killed, most likely because memory ran out"),
    ],
    indirect=["way"],
)
def test_a_replacement_translates_the_sentences_of_a_dead_process(
    way: Way, number: int, message: str
) -> None:
    class Deadly(Turns):
        """Kills the first two processes during their work."""

        def take(
            self, config: SearchConfig, slots: int, tokens: int, running: Sequence[Sentence]
        ) -> list[Sentence]:
            sentences = super().take(config, slots, tokens, running)
            if process.restarts < 2:
                assert process.process.pid
                os.kill(process.process.pid, number)
            return sentences

    def lost(sentences: Sequence[Sentence], cause: str) -> None:
        died.extend((sentence.key, cause) for sentence in sentences)
        searches.append(BEAM)
        queue.put_back(sentences)

    died: list[tuple[int, str]] = []
    searches = [BEAM]
    queue = Deadly(sources=[[5, 6], [7]])
    queue.put_back([Sentence(0, [5, 6]), Sentence(1, [7])])
    with worker_process(way, lost=lost) as process:
        process.translate_turns(lambda: searches.pop() if searches else None, queue)
        assert process.restarts == 2
    assert sorted(key for key, _ in died) == [0, 0, 1, 1]
    assert all(message in cause for _, cause in died)
    assert {key: ranked[0] for key, ranked in queue.tokens.items()} == {0: [5, 6], 1: [7]}


def test_a_spawned_process_that_cannot_load_its_model_raises_the_error(tmp_path: Path) -> None:
    load = partial(models_on, [tmp_path], torch.device("cpu"), "fp32")
    with worker_process((load, "spawn")) as process, pytest.raises(UserError, match=r"config\.json"):
        translate(process, Turns(GREEDY))


def test_processes_that_die_idle_are_not_replaced_forever(
    decoder: Decoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Ensemble, "__init__", lambda *_: os.kill(os.getpid(), signal.SIGKILL))
    with (
        worker_process(forked(decoder)) as process,
        pytest.raises(UserError, match="most likely because memory ran out"),
    ):
        translate(process, Turns(BEAM, count=2 * MAX_IDLE_DEATHS))
    assert process.restarts == MAX_IDLE_DEATHS - 1


def test_a_process_killed_while_it_waits_is_always_replaced(decoder: Decoder) -> None:
    def after_its_death() -> SearchConfig | None:
        process.process.kill()
        process.process.join()
        return BEAM if process.restarts < 2 * MAX_IDLE_DEATHS else None

    with worker_process(forked(decoder)) as process:
        process.translate_turns(after_its_death, Turns())


def test_sentences_of_closed_requests_leave_the_batch(way: Way) -> None:
    counts = Counts()
    batch_sizes: list[int] = []

    class Left(Turns):
        """A turn whose first sentence is closed while it is translated."""

        def take(
            self, config: SearchConfig, slots: int, tokens: int, running: Sequence[Sentence]
        ) -> list[Sentence]:
            counts.departures.value += 1
            return super().take(config, slots, tokens, running)

        def gone(self, running: Sequence[Sentence]) -> Collection[int]:
            batch_sizes.append(len(running))
            return [index for index, sentence in enumerate(running) if sentence.key == 0]

    queue = Left(BEAM, sources=[[5] * 20, [6] * 30, [7] * 10])
    with worker_process(way, counts) as process:
        translate(process, queue)
    assert batch_sizes[0] == 3
    assert sorted(queue.hypotheses) == [1, 2]


@pytest.mark.parametrize("arrives", [True, False])
def test_the_process_requests_sentences_only_after_arrivals(decoder: Decoder, arrives: bool) -> None:
    counts = Counts()
    batch_sizes: list[int] = []

    class Slow(Turns):
        """A turn in which a sentence arrives at the second step of the first one."""

        def take(
            self, config: SearchConfig, slots: int, tokens: int, running: Sequence[Sentence]
        ) -> list[Sentence]:
            batch_sizes.append(len(running))
            counts.departures.value += 1
            return super().take(config, slots, tokens, running)

        def gone(self, running: Sequence[Sentence]) -> Collection[int]:
            if arrives and len(batch_sizes) == 2:
                self.put_back([Sentence(1, [7] * 3)])
                counts.arrivals.value += 1
            return []

    queue = Slow(BEAM, sources=[[6] * 60])
    with worker_process(forked(decoder), counts) as process:
        translate(process, queue)
    assert sorted(queue.hypotheses) == ([0, 1] if arrives else [0])
    assert len(batch_sizes) <= (6 if arrives else 3)


@pytest.mark.parametrize(
    ("unfinished", "sources", "threads"),
    [(1, [[5]], 2), (2, [[5]], 1), (2, [[5], [6]], 2), (40, [[5]] * 40, 2)],
)
def test_threads_of_idle_workers_help_with_the_last_few_sentences(
    unfinished: int,
    sources: list[list[int]],
    threads: int,
    decoder: Decoder,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    step = EngineSearch.step

    def report(search: EngineSearch) -> None:
        threads = search._threads(len(search.sentences))
        step(search)  # would block if it waited for threads that a fork does not have
        raise ValueError(f"in {threads} threads")

    # The parent has helping threads, which are not in the fork.
    assert [*decoder.translated(SearchConfig(), ListQueue([Sentence(0, [5, 6])]), threads=lambda _: 2)]
    monkeypatch.setattr(EngineSearch, "step", report)
    counts = Counts()
    counts.unfinished.value = unfinished
    queue = Turns(BEAM, sources=sources)
    with (
        worker_process(forked(decoder), counts, threads=2) as process,
        pytest.raises(ValueError, match=f"in {threads} threads"),
    ):
        translate(process, queue)


def test_the_process_holds_no_socket_of_the_parent(decoder: Decoder) -> None:
    here, there = socket.socketpair()
    with worker_process(forked(decoder)) as process:
        here.settimeout(60)
        translate(process, Turns(GREEDY))
        there.close()
        assert here.recv(1) == b""
    here.close()


def test_closing_in_the_parent_kills_the_process(way: Way) -> None:
    def fails() -> SearchConfig:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), worker_process(way) as process:
        process.translate_turns(fails, Turns())
    assert process.process.exitcode == -signal.SIGKILL
