"""The loader prepares this rank's share of the next steps in advance."""

import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from nmt_cli.data.batching import loader as loader_module
from nmt_cli.data.batching.batch import MicroBatch, Rounding, assemble
from nmt_cli.data.batching.loader import AHEAD, Cut, Loader, LocalBatch
from nmt_cli.data.batching.planner import EveryPairOnce
from nmt_cli.data.batching.schedule import Batches
from nmt_cli.data.config import BatchConfig
from nmt_cli.data.dataset import Split
from nmt_cli.errors import UserError
from tests.data.corpora import SplitOf

PATIENCE = 300.0
LENGTHS = [(1 + i * 7 % 30, 1 + i * 11 % 30) for i in range(100)]
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def split(split_of: SplitOf) -> Split:
    """Return 100 pairs of up to 30 tokens per side."""
    return split_of(LENGTHS)


@contextmanager
def loading(split: Split, folder: Path, cut: Cut, **position: Any) -> Iterator[Loader]:
    plan = EveryPairOnce(len(split), BatchConfig(tokens=300, longest=28), seed=1)
    batches = Batches(split, plan, folder, planner=True)
    with closing(Loader(batches, cut, CPU, **position)) as loader:
        yield loader


def steps(split: Split, folder: Path, cut: Cut, count: int, **position: int) -> list[LocalBatch]:
    with loading(split, folder, cut, **position) as loader:
        return list(islice(loader, count))


def pairs_of(*shares: LocalBatch) -> list[int]:
    return [pair for step in shares for part in step.micro_batches for pair in part.pairs.tolist()]


@pytest.mark.parametrize("world", [2, 3, 8])
def test_ranks_together_take_the_batches_of_one_process(tmp_path: Path, split: Split, world: int) -> None:
    alone = steps(split, tmp_path, Cut(0, 1, 10**6), 12)
    ranks = [steps(split, tmp_path, Cut(rank, world, 10**6), 12) for rank in range(world)]
    for batch, *shares in zip(alone, *ranks, strict=True):
        assert sorted(pairs_of(*shares)) == sorted(pairs_of(batch))
        for share in shares:
            assert (share.epoch, share.number) == (batch.epoch, batch.number)
            assert (share.pairs, share.source_tokens) == (batch.pairs, batch.source_tokens)
            assert share.target_tokens == sum(LENGTHS[pair][1] for pair in pairs_of(batch))


def test_micro_batches_respect_the_limit_of_the_device(tmp_path: Path, split: Split) -> None:
    taken = steps(split, tmp_path, Cut(0, 1, 100), 10)
    parts = [part for step in taken for part in step.micro_batches]
    assert max(part.real_source_tokens + part.real_target_tokens for part in parts) <= 100
    assert len(parts) >= 50
    uncut = steps(split, tmp_path, Cut(0, 1, 10**6), 10)
    assert sorted(pairs_of(*taken)) == sorted(pairs_of(*uncut))


def test_rounding_reaches_the_micro_batches(tmp_path: Path, split: Split) -> None:
    taken = steps(split, tmp_path, Cut(0, 1, 200, Rounding(16)), 5)
    assert all(len(part.target_tokens) % 16 == 0 for step in taken for part in step.micro_batches)


def test_a_rank_without_pairs_still_takes_the_step(tmp_path: Path, split_of: SplitOf) -> None:
    split = split_of([(5, 6), (7, 8)])
    last = steps(split, tmp_path, Cut(2, 3, 100), 2)
    assert [(step.micro_batches, step.pairs, step.target_tokens) for step in last] == [([], 2, 14)] * 2


def test_a_run_resumes_after_the_last_step(tmp_path: Path, split: Split) -> None:
    expected = steps(split, tmp_path, Cut(0, 1, 200), 14)
    for done in (1, 6, 13):
        last = expected[done - 1]
        again = steps(split, tmp_path, Cut(0, 1, 200), 1, epoch=last.epoch, number=last.number + 1)
        assert pairs_of(*again) == pairs_of(expected[done])


def test_a_few_steps_are_prepared_in_advance(
    tmp_path: Path, split: Split, monkeypatch: pytest.MonkeyPatch
) -> None:
    assembled = threading.Semaphore(0)

    def counting(*arguments: Any) -> MicroBatch:
        assembled.release()
        return assemble(*arguments)

    monkeypatch.setattr(loader_module, "assemble", counting)
    with loading(split, tmp_path, Cut(0, 1, 10**6)) as loader:
        assert all(assembled.acquire(timeout=PATIENCE) for _ in range(AHEAD + 1))
        assert not assembled.acquire(timeout=0.1)
        next(loader)
        assert assembled.acquire(timeout=PATIENCE)
        assert not assembled.acquire(timeout=0.1)


def test_the_waiting_time_of_the_consumer_is_measured(
    tmp_path: Path, split: Split, monkeypatch: pytest.MonkeyPatch
) -> None:
    requested, clock = threading.Event(), [0.0]
    assembled: list[MicroBatch] = []

    def requesting() -> float:
        now = clock[0]
        requested.set()
        return now

    def slow(*arguments: Any) -> MicroBatch:
        if not assembled:  # later batches may be early or late
            requested.wait(PATIENCE)
            clock[0] += 1.0
        assembled.append(assemble(*arguments))
        return assembled[-1]

    monkeypatch.setattr(loader_module, "time", SimpleNamespace(perf_counter=requesting))
    monkeypatch.setattr(loader_module, "assemble", slow)
    with loading(split, tmp_path, Cut(0, 1, 10**6)) as loader:
        for _ in range(3):
            next(loader)
            clock[0] += 10.0  # the consumer's own time
    assert loader.waited == 1.0


def test_an_error_in_the_thread_reaches_the_reader(
    tmp_path: Path, split: Split, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*arguments: Any) -> MicroBatch:
        raise UserError("the disk is gone")

    monkeypatch.setattr(loader_module, "assemble", failing)
    with loading(split, tmp_path, Cut(0, 1, 10**6)) as loader:
        for _ in range(2):
            with pytest.raises(UserError, match="the disk is gone"):
                next(loader)


@pytest.mark.parametrize("planner", [True, False], ids=["with its queue full", "waiting for a plan"])
def test_closing_ends_the_thread(tmp_path: Path, split: Split, planner: bool) -> None:
    before = set(threading.enumerate())
    plan = EveryPairOnce(len(split), BatchConfig(tokens=300), seed=1)
    batches = Batches(split, plan, tmp_path, planner=planner)
    loader = Loader(batches, Cut(0, 1, 100), CPU)
    time.sleep(0.1)
    started = set(threading.enumerate()) - before
    assert started
    loader.close()
    assert not any(thread.is_alive() for thread in started)


def test_halving_a_step_keeps_its_pairs(tmp_path: Path, split: Split) -> None:
    with loading(split, tmp_path, Cut(0, 1, 200)) as loader:
        step = next(loader)
        half = loader.halved(step)
    assert len(half.micro_batches) == 2 * len(step.micro_batches)
    assert sorted(pairs_of(half)) == sorted(pairs_of(step))
    assert (half.number, half.target_tokens) == (step.number, step.target_tokens)
