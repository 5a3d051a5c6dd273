"""The queue between callers and workers.

Callers open requests and add lines to them; workers take sentences of all requests into their batches and
bring back what they found. When lines come slowly, each is translated as it comes; when they flood, so many
wait that sentences of like length are translated together.
"""

import threading
from collections.abc import Callable, Sequence
from itertools import count

from nmt_cli.decoding.config import SearchConfig
from nmt_cli.decoding.hypotheses import Hypothesis, Sentence
from nmt_cli.decoding.lines.request import Queued, Request
from nmt_cli.decoding.lines.translator import Line


class Closed(Exception):
    """Nobody wants the translations any more."""


class RequestQueue:
    """Requests with sentences that wait for a worker; every method may be called by any thread."""

    def __init__(self, workers: int) -> None:
        """`workers` is how many share what waits."""
        self._workers = workers
        self._changed = threading.Condition()
        self._requests: dict[int, Request] = {}
        """Those that workers have taken from go to the end."""

        self._numbers = count()
        self._error: BaseException | None = None
        self._closed = False

    @property
    def closed(self) -> bool:
        """Whether nothing more will be translated."""
        return self._closed

    def open(self, search: SearchConfig, window: int) -> Request:
        """A new request, of which at most `window` lines are between input and output."""
        with self._changed:
            request = Request(next(self._numbers), search, window)
            self._requests[request.number] = request
            return request

    def add(self, request: Request, line: Line) -> bool:
        """Add a line, when there is room; False if the request is closed."""
        with self._changed:
            self._changed.wait_for(lambda: not self._open(request) or request.has_room(line))
            if self._open(request):
                request.add(line)
                self._changed.notify_all()
            return self._open(request)

    def end(self, request: Request, error: BaseException | None = None) -> None:
        """Say that no more lines will be added to a request; because of `error`, if there is one."""
        with self._changed:
            request.complete, request.error = True, error
            self._changed.notify_all()

    def next(
        self, request: Request, before_waiting: Callable[[], None]
    ) -> tuple[Line, list[list[Hypothesis] | None]] | None:
        """The next line of a request when it is done, and what was found for its sentences; None at the end.

        Calls `before_waiting` if it is not done yet.
        """
        with self._changed:
            if done := self._next(request):
                return done
            if request.ended:
                return None
        before_waiting()
        with self._changed:
            while not (done := self._next(request)) and not request.ended:
                self._changed.wait()
            return done

    def close_request(self, request: Request) -> None:
        """Forget a request, and wait until nobody is at work on its input."""
        with self._changed:
            self._requests.pop(request.number, None)
            self._changed.notify_all()
        with request.reading:
            pass

    def is_open(self, request: Request) -> bool:
        """Whether anybody still wants its translations."""
        with self._changed:
            return self._open(request)

    def turn(self) -> "Turn | None":
        """What a worker with an empty batch does next, when there is something to do; None once closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._waiting())
            return None if self._closed else Turn(self, self._waiting()[0].search)

    def take(
        self, search: SearchConfig, slots: int, tokens: int, running: Sequence[Sentence]
    ) -> list[Sentence]:
        """See `nmt_cli.decoding.engine.Queue`; of requests with the settings `search` only.

        Each worker gets its share of what waits, and each request its share of the slots. When it is the turn
        of a request with other settings, nothing is given, so that the batch runs empty.
        """
        with self._changed:
            self.refuse_closed()
            waiting = self._waiting()
            if not waiting or waiting[0].search != search:
                return []
            alike = [request for request in waiting if request.search == search]
            together = sum(len(some) for request in alike for some in request.waiting.values())
            slots = min(slots, -(-together // self._workers))
            chosen: list[Sentence] = []
            for left, request in zip(range(len(alike), 0, -1), alike, strict=True):
                if share := -(-(slots - len(chosen)) // left):
                    chosen += request.take(share, tokens, [*running, *chosen])
                    self._requests[request.number] = self._requests.pop(request.number)
            return chosen

    def put_back(self, sentences: Sequence[Sentence]) -> None:
        """See `nmt_cli.decoding.engine.Queue`."""
        with self._changed:
            for sentence in sentences:
                if request := self._request_of(sentence):
                    request.put(sentence)
            self._changed.notify_all()

    def finish(self, sentence: Sentence, hypotheses: list[Hypothesis] | None) -> None:
        """Note what was found for a sentence."""
        with self._changed:
            if request := self._request_of(sentence):
                request.found[sentence.key] = hypotheses
                self._changed.notify_all()

    def refuse_closed(self) -> None:
        """Raise `Closed` once closed."""
        if self._closed:
            raise Closed

    def close(self, error: BaseException | None = None) -> None:
        """End all work; `error` is why, and what the callers of all open requests get."""
        with self._changed:
            if not self._closed:
                self._closed, self._error = True, error
            self._changed.notify_all()

    def _next(self, request: Request) -> tuple[Line, list[list[Hypothesis] | None]] | None:
        if error := request.error or self._error:
            raise error
        if self._closed:
            raise RuntimeError("the model was closed; load it again.")
        done = request.next_done()
        if done:
            self._changed.notify_all()
        return done

    def _open(self, request: Request) -> bool:
        return not self._closed and request.number in self._requests

    def _waiting(self) -> list[Request]:
        return [request for request in self._requests.values() if request.waiting]

    def _request_of(self, sentence: Sentence) -> Request | None:
        """None where it is closed."""
        assert isinstance(sentence, Queued)
        return self._requests.get(sentence.request)


class Turn:
    """A worker's share in the queue until its batch runs empty: sentences with the same search settings."""

    def __init__(self, queue: RequestQueue, search: SearchConfig) -> None:
        self._queue, self.search = queue, search
        self.put_back, self.finish = queue.put_back, queue.finish
        self.before_step = queue.refuse_closed

    def take(self, slots: int, tokens: int, running: Sequence[Sentence]) -> list[Sentence]:
        """See `nmt_cli.decoding.engine.Queue`."""
        return self._queue.take(self.search, slots, tokens, running)
