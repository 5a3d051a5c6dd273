"""The queue: shares of requests, deaths of processes, closed requests."""

import threading
import time
from collections.abc import Sequence

import pytest

from nmt_cli.decoding.config import SearchConfig
from nmt_cli.decoding.search.hypotheses import Sentence
from nmt_cli.errors import UserError
from nmt_cli.translation.lines import MAX_PARTS, Line
from nmt_cli.translation.workers.queue import Closed, RequestQueue
from nmt_cli.translation.workers.request import Request

ONE, OTHER = SearchConfig(beam=1), SearchConfig(beam=2)
ROOM = 1 << 20
PATIENCE = 30.0


def a_line(number: int, length: int = 1) -> Line:
    return Line(
        number, "", [Sentence(number * MAX_PARTS, [2] * length)], length, too_long=False, prefix_unknown=False
    )


def request_of(queue: RequestQueue, search: SearchConfig, lines: int) -> Request:
    request = queue.open(search, window=100)
    for number in range(1, lines + 1):
        queue.add(request, a_line(number))
    return request


def owners(sentences: Sequence[Sentence]) -> list[int]:
    return [sentence.request for sentence in sentences]


def test_each_request_gets_its_share_of_the_slots() -> None:
    queue = RequestQueue(1)
    for lines in (9, 1, 9):
        request_of(queue, ONE, lines)
    assert owners(queue.take(ONE, 9, ROOM, [])) == [0] * 3 + [1] + [2] * 5
    assert owners(queue.take(ONE, 3, ROOM, [])) == [0] * 2 + [2]


def test_workers_share_the_waiting_sentences() -> None:
    queue = RequestQueue(3)
    request_of(queue, ONE, 7)
    assert len(queue.take(ONE, 100, ROOM, [])) == 3


def test_a_batch_is_not_refilled_while_other_settings_wait_longest() -> None:
    queue = RequestQueue(1)
    request_of(queue, ONE, 4)
    request_of(queue, OTHER, 4)
    assert queue.next_search() == ONE
    running = queue.take(ONE, 2, ROOM, [])
    assert owners(running) == [0, 0]
    assert queue.take(ONE, 2, ROOM, running) == []
    assert queue.next_search() == OTHER
    assert owners(queue.take(OTHER, 9, ROOM, [])) == [1] * 4
    assert owners(queue.take(ONE, 9, ROOM, [])) == [0] * 2


def test_returned_sentences_are_taken_again_unless_their_request_is_closed() -> None:
    queue = RequestQueue(1)
    open_one, closed = (request_of(queue, ONE, 2) for _ in range(2))
    taken = queue.take(ONE, 4, ROOM, [])
    queue.close_request(closed)
    queue.put_back(taken)
    queue.finish(taken[-1], None)
    assert owners(queue.take(ONE, 4, ROOM, [])) == [open_one.number] * 2


def test_a_sentence_is_tried_alone_after_two_deaths_and_fails_after_three() -> None:
    queue = RequestQueue(1)
    request, other = (request_of(queue, ONE, 2) for _ in range(2))
    for _ in range(2):
        assert queue.next_search() == ONE
        running = queue.take(ONE, 9, ROOM, [])
        assert len(running) == 4
        queue.lost(running, "it was killed.")
    late = request_of(queue, ONE, 1)
    assert queue.take(ONE, 9, ROOM, [Sentence(9, [2])]) == []  # until the batch is empty
    for _ in range(4):
        assert queue.next_search() == ONE
        running = queue.take(ONE, 9, ROOM, [])
        assert len(running) == 1
        assert queue.take(ONE, 9, ROOM, running) == []
        if owners(running) == [request.number]:
            queue.lost(running, "it was killed.")
        else:
            queue.finish(running[0], [])
    with pytest.raises(UserError, match=r"line \d, 3 times in a row: it was killed"):
        queue.next(request, lambda: None)
    assert queue.next(other, lambda: None)
    assert owners(queue.take(ONE, 9, ROOM, [])) == [late.number]


def test_only_one_turn_takes_a_suspect() -> None:
    queue = RequestQueue(1)
    request = request_of(queue, ONE, 1)
    for _ in range(2):
        queue.lost(queue.take(ONE, 1, ROOM, []), "it was killed.")
    assert queue.next_search() == queue.next_search() == ONE
    assert [owners(queue.take(ONE, 1, ROOM, [])) for _ in range(2)] == [[request.number], []]


def test_sentences_of_closed_requests_are_reported() -> None:
    queue = RequestQueue(1)
    open_one, closed = (request_of(queue, ONE, 2) for _ in range(2))
    running = queue.take(ONE, 4, ROOM, [])
    assert queue.unfinished == 4
    assert list(queue.gone(running)) == []
    queue.close_request(closed)
    assert [owners([running[index]]) for index in queue.gone(running)] == [[closed.number]] * 2
    assert queue.unfinished == 2
    queue.finish(running[owners(running).index(open_one.number)], [])
    assert queue.unfinished == 1


def test_the_shared_count_of_unfinished_sentences_is_updated() -> None:
    queue = RequestQueue(workers=2)
    unfinished = queue.counts.unfinished
    first, second = request_of(queue, ONE, 3), request_of(queue, ONE, 2)
    assert unfinished.value == 5
    taken = queue.take(ONE, 2, ROOM, [])
    assert unfinished.value == 5, "what is being translated counts"
    queue.finish(taken[0], [])
    assert unfinished.value == 4
    queue.drop(second if owners(taken)[0] == first.number else first)
    assert unfinished.value == 4 - (2 if owners(taken)[0] == first.number else 3)


def test_closing_wakes_callers_and_workers() -> None:
    queue = RequestQueue(1)
    request = request_of(queue, ONE, 0)
    results: list[str] = []

    def caller() -> None:
        with pytest.raises(ValueError, match="why") as raised:
            queue.next(request, lambda: None)
        results.append(str(raised.value))

    threads = [
        threading.Thread(target=caller),
        threading.Thread(target=lambda: results.append(str(queue.next_search()))),
    ]
    for thread in threads:
        thread.start()
    queue.close(ValueError("why"))
    for thread in threads:
        thread.join(PATIENCE)
    assert sorted(results) == ["None", "why"]
    with pytest.raises(Closed):
        queue.take(ONE, 1, 1, [])


def test_closing_a_request_under_the_lock_does_not_wait_for_its_reader() -> None:
    """The garbage collector may close it in any thread, while the thread holds the lock."""
    queue = RequestQueue(1)
    request, read, locked = queue.open(ONE, window=1), threading.Event(), threading.Event()

    def reader() -> None:
        with request.reading:
            read.set()
            assert locked.wait(PATIENCE)
            queue.is_open(request)

    def collect() -> None:
        assert read.wait(PATIENCE)
        locked.set()
        queue.close_request(request)

    other = queue.open(ONE, window=1, on_change=collect)  # called under the lock
    threads = [threading.Thread(target=work, daemon=True) for work in (reader, lambda: queue.end(other))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert not any(thread.is_alive() for thread in threads)
    until = time.monotonic() + PATIENCE
    while queue.is_open(request):
        assert time.monotonic() < until
        time.sleep(0.001)


def test_a_request_closed_under_the_lock_leaves_when_the_lock_is_free() -> None:
    queue = RequestQueue(1)
    request = request_of(queue, ONE, 2)
    running, departures = queue.take(ONE, 1, ROOM, []), queue.counts.departures.value
    seen: list[bool] = []

    def collect() -> None:
        queue.close_request(request)
        seen.append(request.number in queue._requests)  # the method that holds the lock relies on it

    queue.end(queue.open(ONE, window=1, on_change=collect))  # calls `collect` under the lock
    assert seen == [True] and not queue.is_open(request)
    assert not queue._lock.locked() and request.number not in queue._requests
    assert queue.counts.departures.value == departures + 1 and queue.counts.unfinished.value == 0
    assert queue.gone(running) == [0]


def test_a_longer_sentence_gets_room_although_shorter_ones_keep_coming() -> None:
    queue = RequestQueue(1)
    request_of(queue, ONE, 3)
    running = queue.take(ONE, 3, 20, [])
    long = queue.open(ONE, window=100)
    queue.add(long, a_line(1, length=9))
    request_of(queue, ONE, 5)
    assert queue.take(ONE, 2, 20, running) == []  # 4 sentences of 10 tokens would be too many
    assert owners(queue.take(ONE, 2, 20, running[:1])) == [long.number]
