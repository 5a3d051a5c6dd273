"""Streams of lines: order, errors, and the end of all threads."""

import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from copy import deepcopy
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from nmt_cli.decoding.config import SearchConfig
from nmt_cli.decoding.search.hypotheses import Done, Sentence
from nmt_cli.engine.decoder import Decoder
from nmt_cli.engine.search import EngineSearch
from nmt_cli.runtime.threads import available_cores
from nmt_cli.scoring.command import CommandScorer
from nmt_cli.text.tokenizer import Tokenizer
from nmt_cli.translation.call_options import CallOptions
from nmt_cli.translation.lines import Line, Translation
from nmt_cli.translation.loading import Loaded
from nmt_cli.translation.segmenter import Segmenter
from nmt_cli.translation.stream import stream
from nmt_cli.translation.text.ranking import Scorer
from nmt_cli.translation.translator import Translator
from nmt_cli.translation.workers.pool import Workers
from nmt_cli.translation.workers.queue import RequestQueue
from tests.translation.conftest import GREEDY

PATIENCE = 300.0
Streamed = Callable[..., Iterator[Translation]]


@pytest.fixture(scope="module")
def streamed(copier: Loaded) -> Streamed:
    """Return a function that translates raw lines: `streamed(lines, window=…, workers=…)`."""

    def streamed(
        lines: Iterator[str],
        window: int = 8192,
        workers: int = 2,
        before_waiting: Callable[[], None] = lambda: None,
        search: SearchConfig = GREEDY.search,
        scorer: Scorer | None = None,
    ) -> Iterator[Translation]:
        config = replace(GREEDY, search=search)
        translator = Translator(copier.translator.tokenizers, copier.models, config, scorer=scorer)
        with (
            pytest.MonkeyPatch.context() as patch,
            closing(Workers([lambda: copier.decoder] * workers, "fork")) as pool,
        ):
            patch.setattr("nmt_cli.translation.stream.WINDOW", window)
            yield from stream(translator, translator.options(), pool.queue, lines, before_waiting)

    return streamed


def sentences(count: int) -> list[str]:
    """Return random lines of up to thirty letters."""
    chosen = random.Random(1)
    return ["".join(chosen.choices("abcdefgh", k=chosen.choice([0, 1, 4, 9, 30]))) for _ in range(count)]


def answers(translations: Iterator[Translation]) -> list[str]:
    return [translation.text for translation in translations]


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("window", [1, 2, 7, 8192])
def test_translations_are_in_the_order_of_the_lines(streamed: Streamed, window: int, workers: int) -> None:
    lines = sentences(60)
    result = list(streamed(iter(lines), window=window, workers=workers))
    assert [translation.line.number for translation in result] == list(range(1, 61))
    assert [translation.text for translation in result] == lines
    assert answers(streamed(iter([]), workers=workers)) == []


@given(written=st.text(alphabet="ab\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"))
@settings(max_examples=15)
def test_line_ends_written_by_the_model_become_spaces(streamed: Streamed, written: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Tokenizer, "restore", lambda tokenizer, text: written)
        (result,) = answers(streamed(iter(["a"]), workers=1))
    assert f"{result}.".splitlines() == [f"{result}."]
    assert result.split() == written.split()


@pytest.mark.parametrize("window", [1, 10])
def test_the_reader_is_at_most_a_window_ahead(streamed: Streamed, window: int) -> None:
    """The reader holds one more line."""
    shown, distances = 0, []

    def lines() -> Iterator[str]:
        for number, line in enumerate(sentences(100), start=1):
            distances.append(number - shown)
            yield line

    for translation in streamed(lines(), window=window):
        shown = translation.line.number
        time.sleep(0.002)  # the reader would run ahead if it could
    assert window < max(distances) <= window + 2


def test_a_single_line_is_translated_and_flushed_before_the_next_one(streamed: Streamed) -> None:
    seen: list[str] = []
    flushed: list[str] = []
    answered = threading.Semaphore(0)

    def flush() -> None:
        if len(seen) > len(flushed):
            flushed[:] = seen
            answered.release()

    def lines() -> Iterator[str]:
        for line in ("abc", "", "de", "f"):
            yield line
            assert answered.acquire(timeout=PATIENCE)

    for translation in streamed(lines(), before_waiting=flush):
        seen.append(translation.text)
    assert seen == ["abc", "", "de", "f"]


class Broken(Exception):
    """An unexpected error."""


def test_an_error_of_the_reader_reaches_the_caller(streamed: Streamed) -> None:
    def lines() -> Iterator[str]:
        yield "abc"
        raise Broken("the disk is gone")

    with pytest.raises(Broken, match="the disk is gone"):
        answers(streamed(lines()))


@pytest.mark.parametrize("scorer", [None, CommandScorer("sed s/.*/1/", 60)], ids=["one by one", "in a block"])
def test_all_lines_before_an_error_of_the_reader_are_translated(
    streamed: Streamed, scorer: Scorer | None
) -> None:
    before = sentences(40)

    def lines() -> Iterator[str]:
        yield from before
        raise Broken

    seen: list[str] = []
    with pytest.raises(Broken):
        for translation in streamed(lines(), search=SearchConfig(beam=2), scorer=scorer):
            seen.append(translation.text)
    assert seen == before


@pytest.mark.parametrize("error", [Broken, KeyboardInterrupt])
def test_an_error_of_a_worker_reaches_the_caller_while_the_input_blocks(
    streamed: Streamed, monkeypatch: pytest.MonkeyPatch, error: type[BaseException]
) -> None:
    def fails(*_: object) -> None:
        raise error("no such instruction")

    def lines() -> Iterator[str]:
        yield "abc"
        forever.wait(PATIENCE)

    forever = threading.Event()
    monkeypatch.setattr(EngineSearch, "step", fails)
    with pytest.raises(error, match="no such instruction"):
        answers(streamed(lines()))
    forever.set()


@pytest.mark.parametrize("scorer", [None, CommandScorer("sed s/.*/1/", 60)], ids=["one by one", "in a block"])
def test_finished_lines_before_an_error_of_a_worker_are_translated(
    streamed: Streamed, monkeypatch: pytest.MonkeyPatch, scorer: Scorer | None
) -> None:
    step = EngineSearch.step

    def fails_once_only_long_lines_are_left(search: EngineSearch) -> list[Done]:
        if all(len(sentence.tokens) > 10 for sentence in search.sentences):
            raise Broken
        return step(search)

    monkeypatch.setattr(EngineSearch, "step", fails_once_only_long_lines_are_left)
    seen: list[str] = []
    with pytest.raises(Broken):
        lines = iter(["abc", "", "de", "abcdefgh" * 4, "fg"])
        for translation in streamed(lines, workers=1, search=SearchConfig(beam=2), scorer=scorer):
            seen.append(translation.text)
    assert seen == ["abc", "", "de"]


def flood() -> Iterator[str]:
    while True:
        yield from ("abc def", "gh", "ijklmnopqrstuvwxyz " * 2)


def assert_gone(threads: set[threading.Thread]) -> None:
    until = time.monotonic() + PATIENCE
    while any(thread.is_alive() for thread in threads):
        assert time.monotonic() < until
        time.sleep(0.01)


@pytest.mark.parametrize("seen", [1, 50])
def test_closing_early_ends_all_threads(streamed: Streamed, seen: int) -> None:
    before = set(threading.enumerate())
    translations = streamed(flood(), window=20, workers=3)
    for _ in range(seen):
        next(translations)
    started = set(threading.enumerate()) - before
    assert len(started) == 4
    del translations  # as after an error of the caller
    assert_gone(started)


def test_closing_abandons_the_running_batch(streamed: Streamed, monkeypatch: pytest.MonkeyPatch) -> None:
    step, close = EngineSearch.step, RequestQueue.close
    under_way, over = threading.Event(), threading.Event()
    steps: list[None] = []

    def slow(search: EngineSearch) -> list[Done]:
        steps.append(None)
        under_way.set()
        assert over.wait(PATIENCE)
        return step(search)

    def closed(queue: RequestQueue) -> None:
        close(queue)
        over.set()

    def interrupted() -> None:
        assert under_way.wait(PATIENCE)
        raise Broken

    long = "abcdefghijklmnopqrstuvwxyz " * 2
    search = SearchConfig(beam=1, rows=1)
    before = set(threading.enumerate())
    monkeypatch.setattr(EngineSearch, "step", slow)
    monkeypatch.setattr(RequestQueue, "close", closed)
    with pytest.raises(Broken):
        answers(streamed(iter([long]), workers=1, before_waiting=interrupted, search=search))
    assert_gone(set(threading.enumerate()) - before)
    assert len(steps) == 1


def test_a_blocked_reader_does_not_delay_closing(streamed: Streamed) -> None:
    def lines() -> Iterator[str]:
        yield "abc"
        forever.wait(PATIENCE)
        given_up.set()

    forever, given_up = threading.Event(), threading.Event()
    translations = streamed(lines())
    assert next(translations).text == "abc"
    translations.close()  # type: ignore[attr-defined]  # it is a generator
    assert not given_up.is_set()
    forever.set()


@pytest.mark.parametrize("late", ["read_lines", "_work"])
def test_a_thread_interrupted_at_its_start_does_no_work(
    streamed: Streamed, monkeypatch: pytest.MonkeyPatch, late: str
) -> None:
    """Python would not wait for the thread, and crashes if it ends while the tokenizer or torch runs."""
    threads, worked = [], []

    def start(thread: threading.Thread) -> None:
        threads.append(thread)
        if thread._target.__name__ == late:  # type: ignore[attr-defined]
            raise KeyboardInterrupt

    monkeypatch.setattr(threading.Thread, "start", start)
    monkeypatch.setattr(Segmenter, "line", lambda *_: worked.append("line"))
    monkeypatch.setattr(EngineSearch, "join", lambda *_: worked.append("search"))
    with pytest.raises(KeyboardInterrupt):
        list(streamed(iter(["abc"]), workers=1))
    threads[-1].run()
    assert not worked


def test_closing_waits_for_the_tokenizer(streamed: Streamed, monkeypatch: pytest.MonkeyPatch) -> None:
    cut, cutting, go_on, log = Segmenter.line, threading.Event(), threading.Event(), []

    def slowly(segmenter: Segmenter, number: int, raw: str, options: CallOptions) -> Line:
        if number == 2:
            cutting.set()
            go_on.wait(PATIENCE)
            log.append("cut")
        return cut(segmenter, number, raw, options)

    monkeypatch.setattr(Segmenter, "line", slowly)
    translations = streamed(iter(["abc"] * 100))
    next(translations)
    assert cutting.wait(PATIENCE)
    threading.Timer(0.3, go_on.set).start()
    translations.close()  # type: ignore[attr-defined]  # it is a generator
    log.append("end")
    assert log == ["cut", "end"]


@pytest.mark.parametrize("workers", [1, 3])
def test_a_single_line_uses_the_threads_of_all_workers(
    streamed: Streamed, monkeypatch: pytest.MonkeyPatch, workers: int
) -> None:
    def report(search: EngineSearch) -> None:
        raise Broken(f"{search._threads(len(search.sentences))} at work")

    monkeypatch.setattr(EngineSearch, "step", report)
    with pytest.raises(Broken) as raised:
        answers(streamed(iter(["abc"]), workers=workers))
    assert str(raised.value) == f"{min(workers, available_cores())} at work"


def test_lines_are_in_order_after_memory_ran_out(streamed: Streamed, monkeypatch: pytest.MonkeyPatch) -> None:
    join = EngineSearch.join

    def cramped(search: EngineSearch, joining: Sequence[Sentence]) -> None:
        if len(joining) > 2:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        join(search, joining)

    monkeypatch.setattr(EngineSearch, "join", cramped)
    lines = sentences(60)
    assert answers(streamed(iter(lines), workers=3)) == lines


def test_a_model_that_computes_nan_gets_the_flag_empty(copier: Loaded) -> None:
    model = deepcopy(copier.models[0])
    assert isinstance(model.decoder_norm, torch.nn.LayerNorm)
    with torch.no_grad():
        model.decoder_norm.weight.fill_(torch.nan)
    result = copier.translator.translate(Decoder.of([model]), ["abc", "", "de"])
    assert [(one.text, list(one.flags)) for one in result] == [("", ["empty"]), ("", []), ("", ["empty"])]
