"""Lines come in and their translations go out, in order, while workers translate what has arrived.

When the lines come slowly, each is translated as it comes; when they flood, so many wait that sentences of
like length are translated together. No more than a window of lines is ever between input and output.
"""

import threading
from bisect import insort
from codecs import BOM_UTF8
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext, suppress
from dataclasses import dataclass, field

import torch

from nmt_cli.decoding.config import SearchConfig
from nmt_cli.decoding.engine import Found, Waiting, taken, translated
from nmt_cli.decoding.ensemble import Ensemble
from nmt_cli.decoding.hypotheses import Hypothesis, Sentence
from nmt_cli.decoding.lines.translator import PARTS, Line, Translation, Translator
from nmt_cli.decoding.lines.worker_process import Work, apart
from nmt_cli.machine.devices import can_be_forked, current

CHUNK = 1 << 16


def lines_of(read: Callable[[int], bytes]) -> Iterator[bytes]:
    """The lines as they arrive, without their ends; only a line feed ends a line.

    `read` waits for some bytes and gives what there is up to a number, nothing at the end. A byte-order mark
    at the start belongs to no line.
    """
    pieces: list[bytes] = []
    mark = BOM_UTF8
    while chunk := read(CHUNK):
        first, *rest = chunk.split(b"\n")
        pieces.append(first)
        if rest:
            yield b"".join(pieces).removeprefix(mark)
            yield from rest[:-1]
            pieces, mark = [rest[-1]], b""
    if last := b"".join(pieces):
        yield last.removeprefix(mark)


@dataclass
class _Pool:
    """What is between input and output; whoever holds `change` owns it, but all may see if it is closed."""

    window: int
    workers: int
    change: threading.Condition = field(default_factory=threading.Condition)
    lines: dict[int, Line] = field(default_factory=dict)
    waiting: dict[int, list[Sentence]] = field(default_factory=dict)
    """By generation, half a window of lines; each from short to long, and the newest of a length first."""

    found: dict[int, list[Hypothesis] | None] = field(default_factory=dict)
    shown: int = 0
    complete: bool = False
    """No more lines will come."""

    closed: bool = False
    cutting: threading.Lock = field(default_factory=threading.Lock)
    """Held by who cuts a line into tokens, in code that must not be cut short; not taken up once closed."""

    error: BaseException | None = None

    def add(self, line: Line) -> bool:
        """Take a line in, when there is room; false if nobody wants it any more."""
        with self.change:
            self.change.wait_for(lambda: self.closed or line.number - self.shown <= self.window)
            self.lines[line.number] = line
            for sentence in line.sentences:
                self._wait(sentence)
            self.change.notify_all()
            return not self.closed

    def take(self, most: int, tokens: int, beside: Sequence[Sentence]) -> list[Sentence]:
        """See `nmt_cli.decoding.engine.Waiting`."""
        with self.change:
            if self.closed:
                raise _Closed
            if not beside:
                self.change.wait_for(lambda: self.waiting or self.complete or self.closed)
            for generation in sorted(self.waiting):
                sentences = self.waiting[generation]
                together = sum(map(len, self.waiting.values()))
                chosen = taken(sentences, min(most, -(-together // self.workers)), tokens, beside)
                if not sentences:
                    del self.waiting[generation]
                return chosen
            return []

    def put_back(self, sentences: Sequence[Sentence]) -> None:
        """See `nmt_cli.decoding.engine.Waiting`."""
        with self.change:
            for sentence in sentences:
                self._wait(sentence)

    def finish(self, sentence: Sentence, hypotheses: list[Hypothesis] | None) -> None:
        """Note what was found."""
        with self.change:
            self.found[sentence.key] = hypotheses
            self.change.notify_all()

    def next(self, before_waiting: Callable[[], None]) -> tuple[Line, list[list[Hypothesis] | None]] | None:
        """The next line when it is done, and what was found for its sentences; None at the end."""
        number = self.shown + 1
        while True:
            with self.change:
                if self.error:
                    raise self.error
                if line := self._done(number):
                    self.shown = number
                    self.change.notify_all()
                    return self.lines.pop(number), [self.found.pop(one.key) for one in line.sentences]
                if self.complete and number not in self.lines:
                    return None
            before_waiting()
            with self.change:
                self.change.wait_for(
                    lambda: self._done(number) or self.error or (self.complete and number not in self.lines)
                )

    def end(self, error: BaseException | None = None) -> None:
        """Say that nothing more comes, or why nothing more can come."""
        with self.change:
            self.complete, self.error = True, self.error or error
            self.change.notify_all()

    def close(self) -> None:
        """Send everybody home."""
        with self.change:
            self.closed = True
            self.change.notify_all()
        with self.cutting:
            pass

    def _done(self, number: int) -> Line | None:
        line = self.lines.get(number)
        done = line is not None and all(one.key in self.found for one in line.sentences)
        return line if done else None

    def _wait(self, sentence: Sentence) -> None:
        generation = sentence.key // PARTS // max(1, self.window // 2)
        insort(self.waiting.setdefault(generation, []), sentence, key=lambda one: (len(one.tokens), -one.key))


class _Closed(Exception):
    """Nobody wants more translations."""


def stream(
    translator: Translator,
    ensembles: Sequence[Ensemble],
    lines: Iterator[tuple[int, str]],
    before_waiting: Callable[[], None],
) -> Iterator[Translation]:
    """Translate numbered lines, each of `ensembles` at work by itself; they may share their models.

    Calls `before_waiting` whenever the next translation is not there yet.
    """
    pool = _Pool(translator.config.input.window, len(ensembles))
    with ExitStack() as stack:
        each = [stack.enter_context(one) for one in _workers(translator, ensembles)]
        stack.callback(pool.close)
        # The reader may wait for input for ever. For the others Python waits at its end: they are home soon.
        reader = threading.Thread(target=_feed, args=(pool, translator, lines), daemon=True)
        for thread in (reader, *(threading.Thread(target=_work, args=(pool, work)) for work in each)):
            thread.start()
        while done := pool.next(before_waiting):
            yield translator.translation(*done)


def _workers(translator: Translator, ensembles: Sequence[Ensemble]) -> list[AbstractContextManager[Work]]:
    """A process for each where there are several on a CPU, on Linux, where it is safe to fork one."""
    forked = len(ensembles) > 1 and can_be_forked(ensembles[0].device)
    search = translator.config.search
    return [apart(one, search) if forked else nullcontext(_here(one, search)) for one in ensembles]


def _here(ensemble: Ensemble, search: SearchConfig) -> Work:
    def work(waiting: Waiting, before_step: Callable[[], None]) -> Iterator[Found]:
        torch.set_num_threads(1)
        with current(ensemble.device):
            yield from translated(ensemble, search, waiting, before_step)

    return work


def _feed(pool: _Pool, translator: Translator, lines: Iterator[tuple[int, str]]) -> None:
    try:
        for number, raw in lines:
            with pool.cutting:
                if pool.closed:
                    return
                line = translator.line(number, raw)
            if not pool.add(line):
                return
        pool.end()
    except BaseException as error:
        pool.end(error)


def _work(pool: _Pool, work: Work) -> None:
    if pool.closed:  # Python does not wait for who was interrupted at birth, and torch is coming down by now
        return

    def before_step() -> None:
        if pool.closed:
            raise _Closed

    try:
        with suppress(_Closed):
            for sentence, hypotheses in work(pool, before_step):
                pool.finish(sentence, hypotheses)
    except BaseException as error:
        pool.end(error)
