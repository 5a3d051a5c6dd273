"""The epoch plan puts every pair in one batch, within the limits, in random order."""

import hashlib
import tracemalloc
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmt_cli.data.batching.plan import Shard, plan_shard, shard_count
from nmt_cli.data.config import BatchConfig
from nmt_cli.data.dataset import Sentences, Split
from tests.data.corpora import Lengths, SplitOf, batches_of

LENGTHS = st.lists(st.tuples(st.integers(1, 30), st.integers(1, 30)), max_size=120)
CONFIGS = st.builds(
    BatchConfig, tokens=st.integers(5, 90), longest=st.integers(3, 40), shard_pairs=st.integers(1, 150)
)
SMALL = st.integers(0, 3)


def epoch(split: Split, config: BatchConfig, seed: int = 1, number: int = 0) -> list[Shard]:
    return [plan_shard(split, config, seed, number, i) for i in range(shard_count(len(split), config))]


@given(LENGTHS, CONFIGS, SMALL, SMALL)
def test_every_pair_is_in_one_batch_per_epoch_or_counted_as_too_long(
    split_of: SplitOf, lengths: Lengths, config: BatchConfig, seed: int, number: int
) -> None:
    shards = epoch(split_of(lengths), config, seed, number)
    fitting = [i for i, pair in enumerate(lengths) if max(pair) <= min(config.longest, config.tokens)]
    assert sorted(pair for batch in batches_of(shards) for pair in batch) == fitting
    assert sum(shard.dropped for shard in shards) == len(lengths) - len(fitting)


@given(LENGTHS, CONFIGS, SMALL)
def test_neither_budget_is_exceeded_and_no_batch_is_empty(
    split_of: SplitOf, lengths: Lengths, config: BatchConfig, seed: int
) -> None:
    for batch in batches_of(epoch(split_of(lengths), config, seed)):
        source, target = (sum(side) for side in zip(*(lengths[pair] for pair in batch), strict=True))
        assert 0 < source <= config.tokens
        assert 0 < target <= config.tokens


@given(LENGTHS, CONFIGS)
def test_no_shard_exceeds_its_size(split_of: SplitOf, lengths: Lengths, config: BatchConfig) -> None:
    shards = epoch(split_of(lengths), config)
    assert all(len(shard.pairs) + shard.dropped <= config.shard_pairs for shard in shards)


def test_batches_are_nearly_full(split_of: SplitOf, natural_lengths: Lengths) -> None:
    planned = batches_of(epoch(split_of(natural_lengths), BatchConfig(tokens=2000)))
    fullest = [max(sum(natural_lengths[i][side] for i in batch) for side in (0, 1)) for batch in planned]
    assert sorted(fullest)[2] > 2000 - 250
    assert np.mean(fullest) > 1950


@pytest.mark.parametrize(
    ("lengths", "sizes"),
    [
        ([(1, 1)] * 303, [51, 52, 100, 100]),
        ([(1, 1)] * 7 + [(100, 100)], [1, 7]),
        ([(10, 9)] * 10 + [(1, 90)], [1, 10]),
    ],
    ids=["equal pairs", "one long pair", "sides of different length"],
)
def test_the_last_two_batches_are_about_equal_within_the_budgets(
    split_of: SplitOf, lengths: Lengths, sizes: list[int]
) -> None:
    planned = batches_of(epoch(split_of(lengths), BatchConfig(tokens=100)))
    assert sorted(map(len, planned)) == sizes


def test_pairs_of_similar_length_are_together(split_of: SplitOf, natural_lengths: Lengths) -> None:
    totals = [
        [sum(natural_lengths[i]) for i in b]
        for b in batches_of(epoch(split_of(natural_lengths), BatchConfig()))
    ]
    assert np.median([max(batch) / min(batch) for batch in totals]) < 1.25


def test_batches_come_in_random_order(split_of: SplitOf, natural_lengths: Lengths) -> None:
    planned = batches_of(epoch(split_of(natural_lengths), BatchConfig(tokens=2000)))
    sizes = [len(batch) for batch in planned]
    rises = sum(later > earlier for earlier, later in pairwise(sizes))
    assert 0.4 < rises / len(sizes) < 0.6


@pytest.mark.parametrize("other", [{"seed": 2}, {"number": 1}], ids=["seed", "epoch"])
def test_another_seed_or_epoch_has_other_batches_of(
    split_of: SplitOf, natural_lengths: Lengths, other: dict[str, int]
) -> None:
    split, config = split_of(natural_lengths[:2000]), BatchConfig(tokens=500)
    one, two = ({frozenset(b) for b in batches_of(epoch(split, config, **o))} for o in ({}, other))
    assert len(one & two) < len(one) / 10


def test_shards_consist_of_other_blocks_of_neighbours_each_epoch(split_of: SplitOf) -> None:
    split, config = split_of([(2, 3)] * 50_000), BatchConfig(shard_pairs=10_240)
    blocks = [{int(pair) // 1024 for pair in epoch(split, config, number=n)[0].pairs} for n in (0, 1)]
    assert all(5 <= len(numbers) <= 10 and max(numbers) - min(numbers) > 20 for numbers in blocks)
    assert blocks[0] != blocks[1]


def test_a_plan_is_the_same_on_every_machine_and_with_every_version_of_numpy(split_of: SplitOf) -> None:
    lengths = [(1 + i * 7 % 61, 1 + i * 11 % 67) for i in range(20_000)]
    shards = epoch(split_of(lengths), BatchConfig(tokens=1000, longest=60, shard_pairs=5000))
    written = hashlib.sha256()
    for shard in shards:
        written.update(np.concatenate((shard.bounds, shard.pairs)).astype("<i8").tobytes())
    assert written.hexdigest()[:16] == "d80c4bd49a9c5e96"


class Endless:
    """Offsets of a billion sentences of 1 to 39 tokens, computed on access."""

    def __len__(self) -> int:
        return 10**9 + 1

    def __getitem__(self, index: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        return cast("np.ndarray[Any, Any]", index * 20 + index * 2_654_435_761 % 20)


def test_memory_depends_on_the_shard_size_and_not_on_the_corpus() -> None:
    config, side = BatchConfig(shard_pairs=100_000), Sentences(np.zeros(0), cast(Any, Endless()))
    split = Split("train", "train", side, side)
    tracemalloc.start()
    shard = plan_shard(split, config, 1, 0, 777)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert 90_000 < len(shard.pairs) <= 100_000
    assert shard.pairs.max() - shard.pairs.min() > 9 * 10**8
    assert peak < 64 << 20


def test_planning_ends_even_with_damaged_offsets() -> None:
    side = Sentences(np.zeros(0), np.array([0, 5, 3, 3, 9, -7, 10**15, 12]))
    shard = plan_shard(Split("train", "train", side, side), BatchConfig(tokens=10), 1, 0, 0)
    assert (shard.pairs.tolist(), shard.dropped) in [([0, 3], 5), ([3, 0], 5)]


def test_a_loaded_shard_equals_the_saved_one(tmp_path: Path, split_of: SplitOf) -> None:
    shard = epoch(split_of([(2, 3), (4, 4), (1, 1), (50, 1)]), BatchConfig(tokens=6))[0]
    shard.save(tmp_path / "shard.npy")
    read = Shard.load(tmp_path / "shard.npy")
    assert batches_of([read]) == batches_of([shard])
    assert (len(read), read.dropped) == (2, 1)
