"""Counting cores, and numbers of threads that one thread of Python sets for itself only."""

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from nmt_cli.runtime.threads import (
    available_cores,
    default_threads,
    in_threads,
    join_wholly,
    restored_threads,
    set_own_threads,
)


def test_available_cores_are_counted() -> None:
    assert 1 <= available_cores() <= (os.cpu_count() or 1)


@pytest.mark.skipif(sys.platform != "linux", reason="cores are taken away as Linux does it")
def test_cores_without_affinity_are_not_counted() -> None:
    script = (
        "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))});"
        "from nmt_cli.runtime.threads import available_cores; print(available_cores())"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "1\n"


@pytest.mark.parametrize(
    ("files", "cores"),
    [
        ({}, 8),
        ({"cpu.max": "max 100000"}, 8),
        ({"cpu.max": "250000 100000"}, 3),  # rounded up
        ({"cpu.max": "20000 100000"}, 1),
        ({"cpu.max": "1600000 100000"}, 8),  # more than the machine has
        ({"a/b/cpu.max": "400000 100000"}, 4),
        ({"a/cpu.max": "200000 100000", "a/b/cpu.max": "max 100000"}, 2),  # the limit of a parent
        ({"other/cpu.max": "100000 100000"}, 8),
        ({"cpu.max": "broken"}, 8),
        ({"cpu/cpu.cfs_quota_us": "250000", "cpu/cpu.cfs_period_us": "100000"}, 3),
        ({"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, 8),
    ],
)
def test_limits_of_control_groups_count_as_cores(
    files: dict[str, str], cores: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(8)), raising=False)
    monkeypatch.setattr("nmt_cli.runtime.threads.CGROUPS", tmp_path / "groups")
    monkeypatch.setattr("nmt_cli.runtime.threads.CGROUP", tmp_path / "own")
    (tmp_path / "own").write_text("1:name=systemd:/x\n0::/a/b\n")
    for name, text in files.items():
        file = tmp_path / "groups" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{text}\n")
    assert available_cores() == cores


@pytest.mark.parametrize(
    ("variable", "threads"), [("1", 1), ("3", 3), ("64", 8), ("0", 8), ("4,2", 8), ("", 8)]
)
def test_the_default_number_of_threads_follows_omp_num_threads(
    variable: str, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nmt_cli.runtime.threads.available_cores", lambda: 8)
    monkeypatch.setenv("OMP_NUM_THREADS", variable)
    assert default_threads(1) == threads
    # Each of two processes has this many. But torchrun sets 1 without being variable.
    assert default_threads(2) == {"3": 6}.get(variable, 8)


@pytest.fixture(autouse=True)
def _four_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(4)
    yield
    torch.set_num_threads(before)


def in_new_thread(work: Callable[[], int]) -> int:
    actual: list[int] = []
    thread = threading.Thread(target=lambda: actual.append(work()))
    thread.start()
    thread.join()
    return actual[0]


def test_the_number_of_threads_of_one_thread_affects_no_other() -> None:
    def alone() -> int:
        set_own_threads(1)
        assert in_new_thread(torch.get_num_threads) == 4
        return torch.get_num_threads()

    assert in_new_thread(alone) == 1
    assert (torch.get_num_threads(), in_new_thread(torch.get_num_threads)) == (4, 4)


def test_numbers_of_threads_are_restored_after_an_error() -> None:
    with pytest.raises(ValueError, match="no"), restored_threads():
        torch.set_num_threads(2)
        assert in_new_thread(torch.get_num_threads) == 2
        raise ValueError("no")
    assert (torch.get_num_threads(), in_new_thread(torch.get_num_threads)) == (4, 4)


@pytest.mark.skipif(sys.platform != "linux", reason="it needs /proc")
def test_a_joined_thread_has_ended_for_the_system() -> None:
    """PyTorch's libraries still hold locks for a while after Python has finished a thread."""
    for _ in range(20):
        threads = [threading.Thread(target=lambda: torch.ones(9, 9) @ torch.ones(9, 9)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            join_wholly(thread)
            assert not Path(f"/proc/self/task/{thread.native_id}").exists()


@pytest.mark.parametrize("count", [0, 1, 3, 4, 5, 100])
def test_work_is_divided_among_the_threads_of_pytorch(count: int) -> None:
    done, workers = [0] * count, set()

    def work(first: int, end: int) -> None:
        workers.add(threading.current_thread().name)
        for index in range(first, end):
            done[index] += 1

    in_threads(work, count)
    assert done == [1] * count
    assert len(workers) <= 4


def test_an_error_in_a_thread_is_raised() -> None:
    def work(first: int, end: int) -> None:
        if end == 8:
            raise ValueError("the last part")

    with pytest.raises(ValueError, match="the last part"):
        in_threads(work, 8)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no children that begin as copies")
def test_a_forked_process_starts_its_own_threads() -> None:
    in_threads(lambda first, end: None, 8)
    if not (child := os.fork()):
        done: list[int] = []
        in_threads(lambda first, end: done.extend(range(first, end)), 8)
        os._exit(0 if sorted(done) == list(range(8)) else 1)
    assert os.waitpid(child, 0)[1] == 0
