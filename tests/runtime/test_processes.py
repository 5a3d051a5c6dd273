"""Tasks shared among processes."""

import multiprocessing
import os
import socket
import subprocess
import sys
import time
from collections.abc import Generator, Iterator
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from nmt_cli.errors import UserError
from nmt_cli.runtime.processes import SharedCount, StartMethod, child, close_sockets, crew, in_child, in_order


@pytest.mark.skipif(sys.platform != "linux", reason="processes are forked on Linux only")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_forked_process_keeps_only_needed_sockets() -> None:
    (ours, theirs), (kept_end, other) = socket.socketpair(), socket.socketpair()
    if not (child := os.fork()):
        close_sockets([kept_end.fileno()])
        kept_end.send(b"ready")
        kept_end.recv(1)
        os._exit(0)
    ours.settimeout(60)
    assert other.recv(9) == b"ready"
    theirs.close()
    assert ours.recv(1) == b""  # otherwise the child still has the other end open
    other.send(b"!")
    os.waitpid(child, 0)
    for end in (ours, kept_end, other):
        end.close()


@pytest.mark.skipif(sys.platform != "linux", reason="processes are forked on Linux only")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_a_count_is_shared_with_a_child(start: StartMethod) -> None:
    count = SharedCount()
    count.value = 5
    with child(start, _add_one, count) as (_, connection):
        assert connection.recv() == 6
    assert count.value == 6


def _add_one(connection: Connection, count: SharedCount) -> None:
    count.value += 1
    connection.send(count.value)


@pytest.mark.parametrize("workers", [1, 2])
def test_results_come_in_the_order_of_the_tasks(workers: int) -> None:
    texts = ["x" * (300_000 if number % 5 == 0 else 1) for number in range(20)]
    assert list(in_order(len, texts, workers)) == [len(text) for text in texts]


@pytest.mark.parametrize("workers", [1, 2])
def test_an_error_is_raised_in_the_order_of_the_tasks(workers: int) -> None:
    results = in_order(int, ["1", "2", "three", "4"], workers)
    assert [next(results), next(results)] == [1, 2]
    with pytest.raises(ValueError, match="three"):
        next(results)


def test_tasks_are_not_taken_far_ahead_of_results() -> None:
    taken = 0

    def tasks() -> Iterator[float]:
        nonlocal taken
        for _ in range(1000):
            taken += 1
            yield 0.0

    results = in_order(time.sleep, tasks(), 2)
    next(results)
    assert taken <= 10
    results.close()  # type: ignore[attr-defined] # it is a generator, which Iterator does not say


def test_a_killed_worker_is_an_error_with_a_remedy() -> None:
    with pytest.raises(UserError, match=r"a worker process was killed, .* Try again with fewer workers"):
        list(in_order(os._exit, [9], 2))


DIES_HALF_SENT = """
import os
from nmt_cli.runtime.processes import in_order

def die_half_sent(task):
    from multiprocessing.connection import Connection
    Connection._send = lambda self, data, *_: os._exit(os.write(self.fileno(), data[:9]))
    return bytes(100_000)

if __name__ == "__main__":
    list(in_order(die_half_sent, [1], 2))
"""


def test_a_worker_killed_while_sending_a_result_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(DIES_HALF_SENT)
    command = [sys.executable, str(tmp_path / "script.py")]
    result = subprocess.run(command, stderr=subprocess.PIPE, text=True, timeout=300)
    assert "UserError: a worker process was killed" in result.stderr


UNPORTABLE = """
class Unportable(Exception):
    def __init__(self, first, second):
        super().__init__(first)

raise Unportable("what went wrong", "more")
"""


def test_an_error_that_can_not_be_pickled_is_reported_by_name_and_text() -> None:
    with pytest.raises(RuntimeError, match="Unportable: what went wrong"):
        in_child(exec, UNPORTABLE)


def test_large_tasks_and_results_do_not_block_each_other() -> None:
    large = [letter * 3_000_000 for letter in "abcde"]
    assert list(in_order(str.upper, large, 2)) == [text.upper() for text in large]


def test_closing_the_results_early_leaves_no_process() -> None:
    results = in_order(len, ["a", "b", "c"], 2)
    assert isinstance(results, Generator)
    assert next(results) == 1
    results.close()
    assert not multiprocessing.active_children()


def test_a_crew_takes_several_rounds_of_tasks() -> None:
    with crew(len, 2) as share:
        assert [list(share(["a"] * count)) for count in (0, 1, 5)] == [[], [1], [1] * 5]
        assert len(multiprocessing.active_children()) == 2
    assert not multiprocessing.active_children()
