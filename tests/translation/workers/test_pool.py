"""Start and end of workers."""

import os
import time
from collections.abc import Iterator

import pytest

from nmt_cli.translation.loading import Loaded
from nmt_cli.translation.stream import stream
from nmt_cli.translation.workers.pool import Workers
from tests.translation.conftest import GREEDY

PATIENCE = 30.0


@pytest.fixture(params=[(1, "fork"), (2, "fork"), (2, None)], ids=["thread", "processes", "threads"])
def workers(request: pytest.FixtureRequest, copier: Loaded) -> Iterator[Workers]:
    count, start = request.param
    workers = Workers([lambda: copier.decoder] * count, start)
    yield workers
    workers.close()


def test_workers_translate_until_closed_and_leave_no_process(workers: Workers, copier: Loaded) -> None:
    assert len(workers.processes) in (0, 2)
    translated = stream(copier.translator, copier.options(), workers.queue, ["ab", "", "cd"])
    assert [one.text for one in translated] == ["ab", "", "cd"]
    assert workers.usable
    for _ in range(2):  # closing again has no effect
        workers.close()
        assert not workers.usable
    assert not any(one.process.is_alive() for one in workers.processes)


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_forked_copy_cannot_close_the_workers(workers: Workers, copier: Loaded) -> None:
    child = os.fork()
    if not child:
        usable = workers.usable
        workers.close()
        workers.close_at_any_moment()
        os._exit(2 if usable else 0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert [one.text for one in stream(copier.translator, copier.options(), workers.queue, ["ab"])] == ["ab"]


def test_workers_of_a_collected_model_close_although_the_thread_holds_the_lock(copier: Loaded) -> None:
    """The garbage collector may close them in any thread, in the middle of a method of the queue."""
    workers = Workers([lambda: copier.decoder])
    request = workers.queue.open(GREEDY.search, window=1, on_change=workers.close_at_any_moment)
    workers.queue.end(request)  # calls `on_change` under the lock
    until = time.monotonic() + PATIENCE
    while workers.usable or any(thread.is_alive() for thread in workers._threads):
        assert time.monotonic() < until
        time.sleep(0.001)
