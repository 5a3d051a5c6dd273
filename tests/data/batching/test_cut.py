"""A global batch is divided evenly over ranks and into micro-batches."""

from itertools import product

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from nmt_cli.data.batching.cut import costs, micro_batches, share
from nmt_cli.data.batching.plan import plan_shard
from nmt_cli.data.config import BatchConfig
from tests.data.corpora import Lengths, SplitOf

LENGTHS = st.lists(st.tuples(st.integers(1, 60), st.integers(1, 60)), max_size=80)


def sides(lengths: Lengths) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    source, target = np.array(lengths, dtype=np.int64).reshape(-1, 2).T
    return source, target


@given(LENGTHS, st.integers(1, 100))
def test_each_pair_goes_to_one_rank(lengths: Lengths, world: int) -> None:
    shares = share(*sides(lengths), world)
    assert len(shares) == world
    assert sorted(np.concatenate(shares).tolist()) == list(range(len(lengths)))
    assert [pairs.tolist() for pairs in shares] == [pairs.tolist() for pairs in share(*sides(lengths), world)]


def test_with_few_pairs_some_ranks_get_none() -> None:
    assert [pairs.tolist() for pairs in share(*sides([(3, 3), (9, 9)]), 4)] == [[1], [0], [], []]


@given(st.lists(st.tuples(st.integers(1, 60), st.integers(1, 60)), min_size=1, max_size=7))
def test_the_slowest_rank_is_near_the_optimum(lengths: Lengths) -> None:
    work, world = costs(*sides(lengths)), 3
    slowest = max(work[pairs].sum() for pairs in share(*sides(lengths), world))
    assignments = np.array(list(product(range(world), repeat=len(lengths))))
    best = min(max(work[ranks == rank].sum() for rank in range(world)) for ranks in assignments)
    assert slowest <= best * (4 / 3 - 1 / (3 * world)) + 1e-9  # Graham, 1969


def test_eight_ranks_have_the_same_work_within_two_percent(
    split_of: SplitOf, natural_lengths: Lengths
) -> None:
    split = split_of(natural_lengths)
    shard = plan_shard(split, BatchConfig(), 1, 0, 0)
    above = []
    for number in range(len(shard)):
        source, target = split.lengths(shard.batch(number))
        work = [costs(source, target)[pairs].sum() for pairs in share(source, target, 8)]
        above.append(max(work) / np.mean(work) - 1)
    assert np.mean(above) < 0.02


@given(LENGTHS, st.integers(1, 200))
def test_micro_batches_have_each_pair_once_within_the_limit(lengths: Lengths, limit: int) -> None:
    parts = micro_batches(*sides(lengths), limit)
    assert sorted(pair for part in parts for pair in part.tolist()) == list(range(len(lengths)))
    for part in parts:
        assert len(part) == 1 or sum(sum(lengths[pair]) for pair in part) <= limit


@given(LENGTHS, st.integers(1, 200))
def test_long_pairs_are_in_the_first_micro_batches(lengths: Lengths, limit: int) -> None:
    totals = [sum(lengths[i]) for part in micro_batches(*sides(lengths), limit) for i in part.tolist()]
    assert totals == sorted(totals, reverse=True)


@given(
    st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), min_size=1, max_size=200), st.integers(150, 400)
)
def test_micro_batches_are_few_and_about_equal(lengths: Lengths, limit: int) -> None:
    parts = micro_batches(*sides(lengths), limit)
    sizes = [sum(sum(lengths[pair]) for pair in part) for part in parts]
    assert len(parts) <= sum(sizes) // (limit - 18) + 1
    assert max(sizes) - min(sizes) <= 36


def test_an_overlong_pair_is_a_micro_batch_alone() -> None:
    parts = micro_batches(*sides([(5, 5), (90, 90), (4, 4), (60, 50)]), 20)
    assert [part.tolist() for part in parts] == [[1], [3], [0, 2]]


def test_pairs_that_do_not_fit_evenly_need_one_more_micro_batch() -> None:
    assert [len(part) for part in micro_batches(*sides([(5, 5)] * 5), 25)] == [2, 1, 2]
