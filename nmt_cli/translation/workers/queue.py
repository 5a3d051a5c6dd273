"""The queue between callers and workers.

A caller opens a request. A reader thread adds lines to it, at most a window of lines ahead of the output.
Worker threads take sentences of all requests into their batches and return hypotheses. The caller receives
finished lines in order. Slow input is translated line by line. Fast input fills the queue, so that batches
consist of sentences of similar length. A turn is the work of a worker until its batch is empty.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import count

from nmt_cli.decoding.config import SearchConfig
from nmt_cli.decoding.search.hypotheses import Hypothesis, Sentence
from nmt_cli.errors import UserError
from nmt_cli.translation.lines import FinishedLine, Line, line_number
from nmt_cli.translation.second_attempt import SecondAttempts
from nmt_cli.translation.workers.request import Request
from nmt_cli.translation.workers.worker import Counts

MAX_DEATHS = 3
"""A request fails if this number of processes died while they translated the same sentence. The last attempt
translates the sentence alone, so that the other sentences of the batch are not blamed."""


LOCK_SECONDS = 1.0
"""After this time, a thread that waits for the lock of the queue may hold it itself."""


class Closed(Exception):
    """Raised in worker threads once the queue is closed."""


class _Locked:
    """Holds the lock of a queue in a `with` block, and drops requests whose callers have left."""

    def __init__(self, queue: "RequestQueue") -> None:
        self._queue = queue

    # A generator as the context would take five times as long, and small models take many short steps.
    def __enter__(self) -> None:
        self._queue._lock.acquire()
        self._queue._drop_left()

    def __exit__(self, *_: object) -> None:
        self._queue._lock.release()
        self._queue._drop_left_unless_locked()


class RequestQueue:
    """All open requests and their waiting sentences. Any thread may call any method.

    Callers use `open`, `next`, `poll`, `drop` and `close_request`. Reader threads use `read_lines`. Worker
    threads use the other methods, some of which are those of a `decoding.batch.Queue`.
    """

    def __init__(self, workers: int) -> None:
        """`workers` is the number of worker threads that share the sentences."""
        self._workers = workers
        # No RLock: the garbage collector may end a caller while the same thread changes the queue.
        self._lock = threading.Lock()
        self._locked = _Locked(self)
        self._work = threading.Condition(self._lock)
        """Notified when sentences wait, and when the queue is closed."""

        self._requests: dict[int, Request] = {}
        """By number. A request moves to the end when a worker takes sentences of it."""

        self._left: deque[Request] = deque()
        """Requests whose callers have left while the lock was held, perhaps by the same thread. This thread
        drops them when it is done, or the next one that gets the lock."""

        self._suspects: list[Sentence] = []
        """Sentences that were in the batches of two processes that died. Each is translated alone."""

        self._numbers = count()
        self.counts = Counts()
        self._error: BaseException | None = None
        self.closed = False
        """True once nothing more is translated."""

    def _drop_left_unless_locked(self) -> None:
        """Drop requests whose callers have left, unless a thread holds the lock, which does so at its end."""
        while self._left and self._lock.acquire(blocking=False):
            try:
                self._drop_left()
            finally:
                self._lock.release()

    def _drop_left(self) -> None:
        while self._left:
            request = self._left.popleft()
            if self._requests.pop(request.number, None) and request.unfinished:
                self.counts.departures.value += 1
                self._suspects = [one for one in self._suspects if one.request != request.number]
            self._count()
            request.notify()

    def can_be_locked(self) -> bool:
        """Return whether the calling thread gets the lock within a second, and does not keep it.

        If not, the garbage collector may have interrupted a method of the queue in this very thread. Then the
        thread must not wait for others, which may need the lock.
        """
        if is_free := self._lock.acquire(timeout=LOCK_SECONDS):
            self._lock.release()
        return is_free

    @property
    def unfinished(self) -> int:
        """The number of sentences of all requests that wait or are being translated."""
        with self._locked:
            return self._unfinished()

    def _unfinished(self) -> int:
        return sum(request.unfinished for request in self._requests.values())

    def open(
        self,
        search: SearchConfig,
        window: int,
        on_change: Callable[[], None] = lambda: None,
        attempts: SecondAttempts | None = None,
    ) -> Request:
        """Return a new request with the settings `search`.

        window: the number of lines that may be added ahead of the output.
        on_change: is called when `poll` may return a line. It must not block, because the caller holds the
            lock.
        attempts: decides which sentences are searched a second time.
        """
        with self._locked:
            changed = threading.Condition(self._lock)
            request = Request(next(self._numbers), search, window, changed, on_change, attempts)
            self._requests[request.number] = request
            return request

    def read_lines(self, request: Request, lines: Iterable[str], cut: Callable[[int, str], Line]) -> None:
        """Add `lines` to a request, until the lines or the request end. A reader thread does only this.

        Instead of raising an error, end the request with the error. `cut` gets the number of a line, from 1,
        and its text, and cuts it into sentences.
        """
        try:
            for number, raw in enumerate(lines, start=1):
                # If Python ends while a daemon thread runs SentencePiece's C++ code, the process crashes. So
                # `close_request` waits for this lock, after which no thread enters the tokenizer.
                with request.reading:
                    line = cut(number, raw) if self.is_open(request) else None
                if line is None or not self.add(request, line):
                    return
            self.end(request)
        except BaseException as error:
            # Any error: otherwise the caller would wait forever.
            self.end(request, error)

    def add(self, request: Request, line: Line) -> bool:
        """Wait until `line` is within the window. Add it, or return False if request or queue is closed."""
        with self._locked:
            last = line.number - request.window
            request.changed.wait_for(lambda: not self.is_open(request) or request.returned >= last)
            if is_open := self.is_open(request):
                request.add(line)
                self._count()
                self._notify_workers()
            return is_open

    def end(self, request: Request, error: BaseException | None = None) -> None:
        """Mark a request as complete. `error` is the error that ended the reading, or None."""
        with self._locked:
            request.complete, request.reader_error = True, error
            request.notify()

    def next(self, request: Request, before_waiting: Callable[[], None]) -> FinishedLine | None:
        """Wait for the next line of a request, and return it with its hypotheses. Return None at the end.

        before_waiting: is called, without the lock, if the line is not finished yet.

        An error that ended the request or the workers is raised after all finished lines before it. Raise
        `RuntimeError` if the queue is closed.
        """
        if (done := self.poll(request)) or request.ended:
            return done
        before_waiting()  # not under the lock, since writing held output may block
        with self._locked:
            while not (done := self._poll(request)) and not request.ended:
                request.changed.wait()
            return done

    def poll(self, request: Request) -> FinishedLine | None:
        """Return the next line and hypotheses, or None if unfinished. Never wait. Raise errors as `next`."""
        with self._locked:
            return self._poll(request)

    def _poll(self, request: Request) -> FinishedLine | None:
        error = request.error or self._error
        if self.closed and not error:
            raise RuntimeError("the model was closed. Load it again.")
        line = request.lines.get(request.returned + 1)
        if line is None or any(one.key not in request.hypotheses for one in line.sentences):
            if error:
                raise error
            return None
        request.returned += 1
        request.changed.notify_all()  # the window has room for another line
        return request.lines.pop(line.number), [request.hypotheses.pop(one.key) for one in line.sentences]

    def drop(self, request: Request) -> None:
        """Remove a request, if still open. Workers drop its sentences from batches before the next step.

        This method never waits, since the garbage collector may call it while the same thread holds the lock.
        """
        request.closed = True
        self._left.append(request)
        self._drop_left_unless_locked()

    def close_request(self, request: Request) -> None:
        """Remove a request, and wait until its reader thread does not use the tokenizer."""
        self.drop(request)
        # The reader waits for no other lock meanwhile, so this ends, whatever locks the calling thread holds.
        with request.reading:
            pass

    def is_open(self, request: Request) -> bool:
        """Return whether both the request and the queue are open. Never wait."""
        return not (self.closed or request.closed)

    def next_search(self) -> SearchConfig | None:
        """Wait for a sentence, and return the settings of the next turn. Return None once the queue is
        closed.

        They are those of a sentence to translate alone, if there is one. Otherwise they are those of the
        request that has waited longest.
        """
        with self._locked:
            self._work.wait_for(lambda: self.closed or self._suspects or self._waiting())
            if self.closed:
                return None
            first = self._requests[self._suspects[0].request] if self._suspects else self._waiting()[0]
            return first.search

    def take(
        self, config: SearchConfig, slots: int, tokens: int, running: Sequence[Sentence]
    ) -> list[Sentence]:
        """Remove and return up to `slots` sentences with the settings `config`. Never wait.

        Workers and requests get equal shares. With `running`, the batch then has at most `tokens` source
        tokens, padding included. A sentence that must be translated alone is returned alone, and only if
        nothing is running. Return [] if no sentence waits, or if the request that has waited longest has
        other settings. Raise `Closed` after closing.
        """
        with self._locked:
            self._refuse_closed()
            if self._suspects or any(map(_is_suspect, running)):
                alone = [one for one in self._suspects if self._requests[one.request].search == config][:1]
                if running or not alone:
                    return []
                self._suspects.remove(alone[0])
                return [*alone]
            waiting = self._waiting()
            if not waiting or waiting[0].search != config:
                return []
            eligible = [request for request in waiting if request.search == config]
            sentences = sum(len(group) for request in eligible for group in request.waiting.values())
            # Otherwise one worker would take all sentences while the others are idle.
            slots = min(slots, -(-sentences // self._workers))
            chosen: list[Sentence] = []
            # Requests after this one share the slots that it does not use.
            for left, request in zip(range(len(eligible), 0, -1), eligible, strict=True):
                share = -(-(slots - len(chosen)) // left)
                taken = request.take(share, tokens, [*running, *chosen]) if share else []
                if taken:
                    chosen += taken
                    # To the end, so that the other requests come next.
                    self._requests[request.number] = self._requests.pop(request.number)
                elif running and request is eligible[0]:
                    return []  # its sentence needs room, or shorter ones would always come first
            return chosen

    def put_back(self, sentences: Sequence[Sentence]) -> None:
        """Return taken sentences to the queue. Sentences of closed requests are dropped."""
        with self._locked:
            for sentence in sentences:
                if request := self._request_of(sentence):
                    request.put(sentence)
            self._notify_workers()

    def lost(self, sentences: Sequence[Sentence], cause: str) -> None:
        """Return the sentences of a process that died to the queue. `cause` says why it died.

        After its second death, a sentence is translated alone. After the third, its request fails with a
        `UserError` that names `cause`.
        """
        with self._locked:
            for sentence in sentences:
                if not (request := self._request_of(sentence)):
                    continue
                again = replace(sentence, deaths=sentence.deaths + 1)
                if again.deaths == MAX_DEATHS:
                    message = f"line {line_number(again):,}, {MAX_DEATHS} times in a row: {cause}"
                    request.fail(UserError(message))
                elif _is_suspect(again):
                    self._suspects.append(again)
                else:
                    request.put(again)
            self._notify_workers()

    def finish(self, sentence: Sentence, hypotheses: list[Hypothesis] | None) -> None:
        """Store hypotheses, best first, or None if memory was too small. Ignore closed requests.

        If the request asks for a second attempt instead, the sentence waits for a worker again.
        """
        # Without the lock, since this makes texts of the hypotheses and checks them.
        if attempts := request.attempts if (request := self._request_of(sentence)) else None:
            if again := attempts.again(sentence, hypotheses):
                self.put_back([again])
                return
            hypotheses = attempts.better(sentence, hypotheses)
        with self._locked:
            if request := self._request_of(sentence):
                request.finish(sentence, hypotheses)
                self._count()

    def gone(self, running: Sequence[Sentence]) -> list[int]:
        """Return the indices of sentences of closed requests. Raise `Closed` if the queue is closed."""
        # Without the lock, for which a worker would wait at each step. A request that leaves at this moment
        # is noticed at the next step.
        self._refuse_closed()
        return [index for index, sentence in enumerate(running) if sentence.request not in self._requests]

    def close(self, error: BaseException | None = None) -> None:
        """End all work, once. Callers of open requests get `error`, or `RuntimeError` if `error` is None."""
        with self._locked:
            if not self.closed:
                self.closed, self._error = True, error
                self.counts.departures.value += 1
            self._work.notify_all()
            for request in self._requests.values():
                request.notify()

    def _count(self) -> None:
        self.counts.unfinished.value = self._unfinished()

    def _notify_workers(self) -> None:
        """Wake idle worker threads. Worker processes also see that sentences wait."""
        self.counts.arrivals.value += 1
        self._work.notify_all()

    def _refuse_closed(self) -> None:
        if self.closed:
            raise Closed

    def _waiting(self) -> list[Request]:
        return [request for request in self._requests.values() if request.waiting]

    def _request_of(self, sentence: Sentence) -> Request | None:
        """Return the request of a sentence, or None if the request was closed."""
        return self._requests.get(sentence.request)


def _is_suspect(sentence: Sentence) -> bool:
    """Return whether a sentence is translated alone, because processes died that translated it before."""
    return sentence.deaths == MAX_DEATHS - 1
