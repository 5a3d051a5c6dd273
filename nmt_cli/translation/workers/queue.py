"""The queue between callers and workers.

Callers open requests and add lines to them; workers take sentences of any requests into their batches and
hand back hypotheses. When lines come slowly, each is translated as it comes; when they come fast, so many
wait that sentences of like length get into one batch.
"""

import threading
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from itertools import count

from nmt_cli.decoding.config import SearchConfig
from nmt_cli.decoding.search.hypotheses import Hypothesis, Sentence
from nmt_cli.errors import UserError
from nmt_cli.translation.translator import PARTS, Line
from nmt_cli.translation.workers.counts import Counts
from nmt_cli.translation.workers.request import Queued, Request

Done = tuple[Line, list[list[Hypothesis] | None]]
"""A line with the hypotheses of each of its sentences."""


MOST_DEATHS = 3
"""The request of a sentence that so many processes died of is given up. From the last but one on it is tried
alone, so that those beside it are not taken for the cause."""


class Closed(Exception):
    """The queue was closed: a worker is to drop its batch."""


class RequestQueue:
    """All open requests, and what waits in them for a worker; every method may be called by any thread."""

    def __init__(self, workers: int) -> None:
        """`workers` is how many workers take from it."""
        self._workers = workers
        self._lock = threading.RLock()  # the garbage collector may close it in any thread, at any time
        self._work = threading.Condition(self._lock)
        """Workers wait for it while no sentence does."""

        self._requests: dict[int, Request] = {}
        """By number. A request that a worker has taken from goes to the end, so that all get their turn."""

        self._suspects: list[Queued] = []
        """Sentences that two processes died of, or of others in the same batch; each is tried alone."""

        self._numbers = count()
        self.counts = Counts()
        self._error: BaseException | None = None
        self._closed = False

    @property
    def closed(self) -> bool:
        """Whether nothing more will be translated."""
        return self._closed

    @property
    def unfinished(self) -> int:
        """How many sentences wait or are being translated."""
        with self._lock:
            # A copy: the garbage collector may run in between, and drop one.
            return sum(request.unfinished for request in [*self._requests.values()])

    def open(self, search: SearchConfig, window: int, told: Callable[[], None] = lambda: None) -> Request:
        """A new request, to be translated with `search`, of which at most `window` lines are held at a time.

        `told` is called in any thread when `next_now` may have something; it must not block.
        """
        with self._lock:
            changed = threading.Condition(self._lock)
            request = Request(next(self._numbers), search, window, changed, told)
            self._requests[request.number] = request
            return request

    def add(self, request: Request, line: Line) -> bool:
        """Add a line, waiting until its window has room; False if the request was closed."""
        with self._lock:
            request.changed.wait_for(lambda: not self._open(request) or request.has_room(line))
            if self._open(request):
                request.add(line)
                self._count()
                self._tell_workers()
            return self._open(request)

    def end(self, request: Request, error: BaseException | None = None) -> None:
        """Note that a request gets no more lines; `error`, if there is one, is raised by `next`."""
        with self._lock:
            request.complete, request.error = True, error
            request.awaken()

    def next(self, request: Request, before_waiting: Callable[[], None]) -> Done | None:
        """Wait for the next line of a request, in order; returns it with the hypotheses of each of its
        sentences.

        None at the end of the request, and for a sentence that did not fit into memory. `before_waiting` is
        called first if the line is not done yet. Raises what ended the reading or the workers.
        """
        if (done := self.next_now(request)) or request.ended:
            return done
        # Not under the lock, as it may block: it writes out what the caller holds back.
        before_waiting()
        with self._lock:
            while not (done := self.next_now(request)) and not request.ended:
                request.changed.wait()
            return done

    def next_now(self, request: Request) -> Done | None:
        """As `next`, but None also where the line is not done yet."""
        with self._lock:
            if error := request.error or self._error:
                raise error
            if self._closed:
                raise RuntimeError("the model was closed; load it again.")
            if done := request.next_done():
                request.changed.notify_all()  # there is room for a line
            return done

    def drop(self, request: Request) -> None:
        """Forget a request and what waits of it."""
        with self._lock:
            if self._requests.pop(request.number, None) and request.unfinished:
                self.counts.departures.increase()
                self._suspects = [one for one in self._suspects if one.request != request.number]
            self._count()
            request.awaken()

    def close_request(self, request: Request) -> None:
        """Drop a request; returns once no thread tokenises a line of it any more."""
        self.drop(request)
        with request.reading:
            pass

    def is_open(self, request: Request) -> bool:
        """Whether the request, and the queue, are still open."""
        with self._lock:
            return self._open(request)

    def turn(self) -> "Turn | None":
        """Wait until some sentence waits, and return a turn for a worker with an empty batch; None once
        closed."""
        with self._lock:
            self._work.wait_for(lambda: self._closed or self._suspects or self._waiting())
            if self._closed:
                return None
            if self._suspects:
                return Turn(self, self._requests[self._suspects[0].request].search, alone=True)
            return Turn(self, self._waiting()[0].search)

    def take(
        self, search: SearchConfig, slots: int, tokens: int, running: Sequence[Sentence]
    ) -> list[Sentence]:
        """See `nmt_cli.decoding.engine.Queue`; takes only from requests with the settings `search`.

        If the request that has waited longest has other settings, the list is empty, so that the worker's
        batch runs empty and its next turn is that request's; so it is where a sentence has to be tried alone.
        """
        with self._lock:
            self._refuse_closed()
            waiting = self._waiting()
            if self._suspects or not waiting or waiting[0].search != search:
                return []
            alike = [request for request in waiting if request.search == search]
            together = sum(len(some) for request in alike for some in request.waiting.values())
            # Else one worker would take all there is while the others have nothing to do.
            slots = min(slots, -(-together // self._workers))
            chosen: list[Sentence] = []
            # What one request does not use of its share of the slots is left to those behind it.
            for left, request in zip(range(len(alike), 0, -1), alike, strict=True):
                if share := -(-(slots - len(chosen)) // left):
                    chosen += request.take(share, tokens, [*running, *chosen])
                    # To the end: the others have their turn first.
                    self._requests[request.number] = self._requests.pop(request.number)
            return chosen

    def take_suspect(self, search: SearchConfig) -> list[Sentence]:
        """Take a sentence that is to be tried alone, if there still is one with these settings."""
        with self._lock:
            self._refuse_closed()
            for one in self._suspects:
                if self._requests[one.request].search == search:
                    self._suspects.remove(one)
                    return [one]
            return []

    def put_back(self, sentences: Sequence[Sentence]) -> None:
        """See `nmt_cli.decoding.engine.Queue`; sentences of closed requests are dropped."""
        with self._lock:
            for sentence in sentences:
                if request := self._request_of(sentence):
                    request.put(sentence)
            self._tell_workers()

    def lost(self, sentences: Sequence[Sentence], how: str) -> None:
        """Return sentences of which a process died, `how` says in which way; the request of one that did so
        for the third time fails."""
        with self._lock:
            for sentence in sentences:
                if not (request := self._request_of(sentence)):
                    continue
                assert isinstance(sentence, Queued)
                again = replace(sentence, deaths=sentence.deaths + 1)
                if again.deaths == MOST_DEATHS:
                    line = again.key // PARTS
                    told = f"line {line:,}, {MOST_DEATHS} times in a row: {how}"
                    request.error = request.error or UserError(told)
                    request.awaken()
                elif again.deaths == MOST_DEATHS - 1:
                    self._suspects.append(again)
                else:
                    request.put(again)
            self._tell_workers()

    def finish(self, sentence: Sentence, hypotheses: list[Hypothesis] | None) -> None:
        """Note the hypotheses of a sentence, best first; None if it did not fit into memory."""
        with self._lock:
            if request := self._request_of(sentence):
                request.finish(sentence, hypotheses)
                self._count()

    def gone(self, running: Sequence[Sentence]) -> list[int]:
        """The places in `running` of sentences whose requests were closed; raises `Closed` once all is."""
        with self._lock:
            self._refuse_closed()
            return [place for place, sentence in enumerate(running) if not self._request_of(sentence)]

    def close(self, error: BaseException | None = None) -> None:
        """End all work; `error`, if that is why, is raised in the callers of all open requests."""
        with self._lock:
            if not self._closed:
                self._closed, self._error = True, error
                self.counts.departures.increase()
            self._work.notify_all()
            for request in self._requests.values():
                request.awaken()

    def _count(self) -> None:
        self.counts.unfinished.value = self.unfinished

    def _tell_workers(self) -> None:
        """That something waits, be they idle or at work."""
        self.counts.arrivals.increase()
        self._work.notify_all()

    def _refuse_closed(self) -> None:
        if self._closed:
            raise Closed

    def _open(self, request: Request) -> bool:
        return not self._closed and request.number in self._requests

    def _waiting(self) -> list[Request]:
        return [request for request in self._requests.values() if request.waiting]

    def _request_of(self, sentence: Sentence) -> Request | None:
        """The request that the sentence belongs to; None if it was closed since."""
        assert isinstance(sentence, Queued)
        return self._requests.get(sentence.request)


class Turn:
    """The queue as one worker sees it until its batch runs empty: sentences with the same search settings.

    Settings can't be mixed in a batch. See `worker.Turn` for what it promises.
    """

    def __init__(self, queue: RequestQueue, search: SearchConfig, *, alone: bool = False) -> None:
        """`alone`: of a single sentence, one that may be deadly."""
        self._queue, self.search = queue, search
        self._alone, self._taken = alone, False
        self._seen = queue.counts.departures.value
        self.put_back, self.finish, self.lost = queue.put_back, queue.finish, queue.lost

    def alone(self, count: int) -> bool:
        """See `worker.Turn`."""
        return self._queue.unfinished == count

    def gone(self, running: Sequence[Sentence]) -> Collection[int]:
        """See `worker.Turn`."""
        if (departures := self._queue.counts.departures.value) == self._seen:
            return ()
        self._seen = departures
        return self._queue.gone(running)

    def take(self, slots: int, tokens: int, running: Sequence[Sentence]) -> list[Sentence]:
        """See `nmt_cli.decoding.engine.Queue`."""
        if not self._alone:
            return self._queue.take(self.search, slots, tokens, running)
        taken, self._taken = self._taken, True
        return [] if taken else self._queue.take_suspect(self.search)
