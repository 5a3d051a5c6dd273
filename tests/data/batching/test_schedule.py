"""Global batches resume at any batch, and one process plans for all on its machine."""

import threading
import time
from collections.abc import Callable
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from nmt_cli.data.batching import planner, schedule
from nmt_cli.data.batching.plan import Shard, plan_shard
from nmt_cli.data.batching.planner import EveryPairOnce
from nmt_cli.data.batching.schedule import Batches
from nmt_cli.data.config import BatchConfig
from nmt_cli.data.dataset import Split
from nmt_cli.errors import UserError
from tests.data.corpora import SplitOf, batches_of, first_batches

LENGTHS = [(1 + i * 7 % 30, 1 + i * 11 % 30) for i in range(100)]
CONFIG = BatchConfig(tokens=150, longest=28, shard_pairs=30)
PLAN = EveryPairOnce(len(LENGTHS), CONFIG, seed=1)


@pytest.fixture(scope="module")
def split(split_of: SplitOf) -> Split:
    """Return 100 pairs, which CONFIG plans in four shards."""
    return split_of(LENGTHS)


def until(condition: Callable[[], bool]) -> bool:
    """Wait up to five minutes for `condition`, and return its value."""
    end = time.monotonic() + 300
    while not condition() and time.monotonic() < end:
        time.sleep(0.01)
    return condition()


def test_batches_follow_the_plan_with_consecutive_numbers(tmp_path: Path, split: Split) -> None:
    with closing(Batches(split, PLAN, tmp_path, planner=True)) as batches:
        taken = first_batches(batches.starting(), 60)
    planned = [batches_of([plan_shard(split, CONFIG, 1, epoch, i) for i in range(4)]) for epoch in (0, 1)]
    expected = [(n, i, pairs) for n, epoch in enumerate(planned) for i, pairs in enumerate(epoch)]
    assert len(expected) < 60
    assert [batch[:3] for batch in taken[: len(expected)]] == expected
    assert taken[len(expected)][:2] == (2, 0)


def test_a_run_resumes_at_any_batch_as_if_never_stopped(tmp_path: Path, split: Split) -> None:
    with closing(Batches(split, PLAN, tmp_path, planner=True)) as batches:
        expected = first_batches(batches.starting(), 45)
        for done, (epoch, number, *_) in enumerate(expected[:40], start=1):
            assert first_batches(batches.starting(epoch, number + 1), 3) == expected[done : done + 3]


def test_too_long_pairs_are_counted_up_to_the_end_of_the_epoch(tmp_path: Path, split: Split) -> None:
    with closing(Batches(split, PLAN, tmp_path, planner=True)) as batches:
        counts = [(batch.epoch, batch.dropped) for batch in islice(batches.starting(), 60)]
    expected = sum(max(pair) > 28 for pair in LENGTHS)
    assert [max(n for e, n in counts if e == epoch) for epoch in (0, 1)] == [expected, expected]
    assert counts == sorted(counts)


def test_each_shard_is_planned_once_for_all_processes(
    tmp_path: Path, split: Split, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned: list[tuple[int, int]] = []

    def counting(*arguments: Any) -> Shard:
        planned.append(arguments[-2:])
        return plan_shard(*arguments)

    monkeypatch.setattr(planner, "plan_shard", counting)
    with (
        closing(Batches(split, PLAN, tmp_path, planner=True)) as first,
        closing(Batches(split, PLAN, tmp_path, planner=False)) as second,
        closing(Batches(split, PLAN, tmp_path, planner=False)) as third,
    ):
        taken = [first_batches(batches.starting(), 40) for batches in (first, second, third)]
    assert taken[0] == taken[1] == taken[2]
    assert len(planned) == len(set(planned))


def test_the_next_shard_is_planned_while_one_is_used(tmp_path: Path, split: Split) -> None:
    with closing(Batches(split, PLAN, tmp_path, planner=True)) as batches:
        next(batches.starting())
        assert until(lambda: len(list(tmp_path.glob("000000-00000[01].npy"))) == 2)


def test_old_plans_are_removed(tmp_path: Path, split: Split, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schedule, "KEPT_BATCHES", 20)
    with closing(Batches(split, PLAN, tmp_path, planner=True)) as batches:
        running = batches.starting()
        file_count = max(len(list(tmp_path.iterdir())) for _ in islice(running, 300))
        assert 3 <= file_count <= 12


def test_closing_ends_the_waiting_of_another_thread(tmp_path: Path, split: Split) -> None:
    ended = threading.Event()

    def wait() -> None:
        with pytest.raises(RuntimeError, match="closed"):
            next(batches.starting())
        ended.set()

    batches = Batches(split, PLAN, tmp_path, planner=False)
    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    assert not ended.wait(0.1)
    batches.close()
    assert ended.wait(300)


def test_a_corpus_of_only_long_pairs_is_refused(tmp_path: Path, split_of: SplitOf) -> None:
    split = split_of([(9, 30), (30, 9)] * 50)
    with (
        closing(Batches(split, PLAN, tmp_path, planner=True)) as batches,
        pytest.raises(UserError, match=r"All 100 training pairs have more than 28 tokens on a side"),
    ):
        next(batches.starting())


def test_an_error_in_planning_reaches_the_reader_of_the_batches(tmp_path: Path, split: Split) -> None:
    (tmp_path / "file").touch()
    with (
        closing(Batches(split, PLAN, tmp_path / "file", planner=True)) as batches,
        pytest.raises(FileExistsError),
    ):
        next(batches.starting())


def test_waiting_for_a_planner_that_has_ended_is_an_error(tmp_path: Path, split: Split) -> None:
    at_work = iter([True, True, False])
    waiting = Batches(split, PLAN, tmp_path, planner=False, planner_at_work=lambda: next(at_work))
    with closing(waiting), pytest.raises(UserError, match=r"which plans the batches in .*, has ended"):
        next(waiting.starting())
    assert list(at_work) == []
