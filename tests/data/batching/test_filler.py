"""Filler rounds up shapes with short dummy segments."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmt_cli.data.batching.filler import Rounding
from nmt_cli.data.batching.plan import plan_shard
from nmt_cli.data.config import BatchConfig
from tests.data.corpora import Lengths, SplitOf

LENGTHS = st.lists(st.tuples(st.integers(1, 60), st.integers(1, 60)), min_size=1, max_size=80)


@given(LENGTHS, st.integers(0, 9).map(lambda power: 1 << power))
def test_short_dummies_round_up_tokens_and_segments(lengths: Sequence[tuple[int, int]], unit: int) -> None:
    sides = np.array(lengths).T
    dummies = Rounding(unit).dummies(*sides)
    assert len(dummies[0]) == len(dummies[1])
    assert (len(lengths) + len(dummies[0])) % unit == 0
    for real, dummy in zip(sides, dummies, strict=True):
        assert (real.sum() + dummy.sum()) % unit == 0
        assert not len(dummy) or 1 <= dummy.min() <= dummy.max() <= 16
        assert dummy.sum() <= 3 * unit


def test_a_round_shape_gets_no_filler() -> None:
    source, target = Rounding(4).dummies(np.array([1, 2, 3, 2]), np.array([3, 3, 3, 3]))
    assert source.tolist() == target.tolist() == []


def test_many_missing_tokens_need_more_dummies() -> None:
    source, target = Rounding(32).dummies(np.ones(31, dtype=int), np.array([*[1] * 30, 3]))
    assert (31 + len(source), 31 + source.sum(), 33 + target.sum()) == (64, 64, 96)


@pytest.mark.parametrize(("longest", "expected"), [(1, 32), (32, 32), (33, 64), (64, 64), (129, 256)])
def test_the_longest_length_is_rounded_up_to_a_power_of_two(longest: int, expected: int) -> None:
    assert Rounding(64).reach(longest) == expected


@pytest.mark.parametrize(("tokens", "unit"), [(25_000, 512), (4096, 64), (3125, 64), (10, 1)])
def test_the_unit_is_about_one_fiftieth_of_the_batch(tokens: int, unit: int) -> None:
    assert Rounding.of(tokens).unit == unit


def test_filler_is_under_three_percent_and_shapes_are_few(
    split_of: SplitOf, natural_lengths: Lengths
) -> None:
    lengths, split = np.array(natural_lengths), split_of(natural_lengths)
    shapes, filler, rounding = set(), 0, Rounding.of(25_000)
    shards = [plan_shard(split, BatchConfig(), 1, epoch, 0) for epoch in range(5)]
    batches = [lengths[shard.batch(i)] for shard in shards for i in range(len(shard))]
    for batch in batches:
        dummies = rounding.dummies(*batch.T)
        tokens = [int(side.sum() + dummy.sum()) for side, dummy in zip(batch.T, dummies, strict=True)]
        shapes.add((*tokens, len(batch) + len(dummies[0]), rounding.reach(int(batch.max()))))
        filler += sum(int(dummy.sum()) for dummy in dummies)
    assert filler / (filler + sum(batch.sum() for batch in batches)) < 0.03
    assert len(shapes) < len({len(batch) for batch in batches}) / 2
