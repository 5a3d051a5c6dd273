"""Micro-batches have the tokens of their pairs, followed by filler that rounds up their shapes."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from nmt_cli.data.batching.batch import MicroBatch, Rounding, assemble, halved
from nmt_cli.data.batching.plan import plan_shard
from nmt_cli.data.config import BatchConfig
from nmt_cli.ragged import Layout
from tests.data.corpora import Lengths, SplitOf, ids_of

LENGTHS = st.lists(st.tuples(st.integers(1, 60), st.integers(1, 60)), min_size=1, max_size=40)
ROUNDINGS = st.one_of(st.none(), st.sampled_from([Rounding(1), Rounding(8), Rounding(64)]))

PAIRS = [(3, 4), (1, 1), (7, 2), (2, 5), (40, 20)]


def segments(tokens: Tensor, layout: Layout) -> list[list[int]]:
    return [tokens[part].tolist() for part in layout.slices()]


@given(LENGTHS, ROUNDINGS)
def test_segments_are_the_requested_pairs_in_order_with_any_filler(
    split_of: SplitOf, lengths: Lengths, rounding: Rounding | None
) -> None:
    split = split_of(lengths)
    pairs = np.random.default_rng(len(lengths)).permutation(len(lengths))[: (len(lengths) + 1) // 2]
    batch, count = assemble(split, pairs, rounding), len(pairs)
    source, target = ([ids_of(side)[pair] for pair in pairs] for side in (split.source, split.target))
    assert segments(batch.source_tokens, batch.source)[:count] == source
    assert segments(batch.target_tokens, batch.target)[:count] == target
    assert segments(batch.labels, batch.target)[:count] == target


@given(LENGTHS, ROUNDINGS)
def test_filler_has_end_tokens_and_no_loss(
    split_of: SplitOf, lengths: Lengths, rounding: Rounding | None
) -> None:
    batch = assemble(split_of(lengths), np.arange(len(lengths)), rounding)
    real_source, real_target = (sum(side) for side in zip(*lengths, strict=True))
    assert (batch.real_source_tokens, batch.real_target_tokens) == (real_source, real_target)
    dummies = [batch.source_tokens[real_source:], batch.target_tokens[real_target:]]
    assert not any(side.any() for side in dummies)
    assert (batch.labels[real_target:] == -1).all()
    assert batch.filler == sum(map(len, dummies))
    assert (batch.filler > 0) == any(
        len(side.lengths) > len(lengths) for side in (batch.source, batch.target)
    )


@given(LENGTHS, ROUNDINGS)
def test_two_draws_repeat_the_batch_with_other_mask_keys(
    split_of: SplitOf, lengths: Lengths, rounding: Rounding | None
) -> None:
    split, pairs = split_of(lengths), np.arange(len(lengths))
    once, twice = assemble(split, pairs, rounding), assemble(split, pairs, rounding, draws=2)
    for name in ("source_tokens", "target_tokens", "labels"):
        assert torch.equal(getattr(twice, name), getattr(once, name).repeat(2))
    for one, two in ((once.source, twice.source), (once.target, twice.target)):
        assert torch.equal(two.lengths, one.lengths.repeat(2)) and two.longest == one.longest
        assert torch.equal(two.mask_keys[: len(one.lengths)], one.mask_keys)
        assert (two.mask_keys[len(one.lengths) :] < 0).all()
        assert len({*two.mask_keys[len(one.lengths) :][: len(pairs)].tolist()}) == len(pairs)
    assert twice.real_target_tokens == 2 * once.real_target_tokens
    assert twice.filler == 2 * once.filler


def test_a_batch_with_filler_has_a_round_shape(split_of: SplitOf) -> None:
    batch = assemble(split_of(PAIRS), np.arange(5), Rounding(64))
    assert (len(batch.source_tokens), len(batch.target_tokens)) == (128, 128)
    assert len(batch.source.lengths) == len(batch.target.lengths) == 64
    assert (batch.source.longest, batch.target.longest) == (64, 64)


def test_a_batch_without_filler_has_the_size_of_its_pairs(split_of: SplitOf) -> None:
    batch = assemble(split_of(PAIRS), np.array([4, 0]))
    assert (len(batch.source_tokens), len(batch.target_tokens), batch.filler) == (43, 24, 0)
    assert (batch.source.longest, batch.target.longest) == (40, 20)


def test_halves_have_every_pair_once_and_half_the_tokens(split_of: SplitOf) -> None:
    split = split_of([(n, n + 1) for n in range(30, 0, -1)])
    whole = assemble(split, np.arange(30))
    halves = halved(split, whole, Rounding(8))
    assert sorted(pair for half in halves for pair in half.pairs.tolist()) == list(range(30))
    sizes = [half.real_source_tokens + half.real_target_tokens for half in halves]
    assert sum(sizes) == whole.real_source_tokens + whole.real_target_tokens
    assert max(sizes) - min(sizes) <= 30
    assert all(len(half.target_tokens) % 8 == 0 for half in halves)


def test_a_single_pair_is_not_halved(split_of: SplitOf) -> None:
    split = split_of(PAIRS)
    assert [half.pairs.tolist() for half in halved(split, assemble(split, np.array([3])))] == [[3]]


@given(LENGTHS, st.integers(0, 9).map(lambda power: 1 << power))
def test_short_dummies_round_up_tokens_and_segments(lengths: Lengths, unit: int) -> None:
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


def tensors(batch: MicroBatch) -> list[Tensor]:
    sides: list[tuple[Any, ...]] = [
        (side, side.groups, side.pair_groups) for side in (batch.source, batch.target)
    ]
    parts = [getattr(part, name) for side in sides for part in side if part for name in part.__slots__]
    own = [batch.source_tokens, batch.target_tokens, batch.labels]
    return own + [value for value in parts if isinstance(value, Tensor)]


def test_only_lengths_and_group_counts_stay_on_the_host(split_of: SplitOf) -> None:
    batch = assemble(split_of(PAIRS), np.arange(5)).to("meta")
    assert [tensor.device.type for tensor in tensors(batch)].count("cpu") == 5
    assert (batch.source.lengths.device.type, batch.target.lengths.device.type) == ("cpu", "cpu")


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_pinned_batch_arrives_unchanged_on_the_device(split_of: SplitOf) -> None:
    batch = assemble(split_of(PAIRS), np.arange(5), Rounding(8))
    pinned = batch.pin_memory()
    assert sum(tensor.is_pinned() for tensor in tensors(pinned)) == len(tensors(batch)) - 5
    there = pinned.to("cuda")
    torch.cuda.synchronize()
    assert all(torch.equal(a, b.cpu()) for a, b in zip(tensors(batch), tensors(there), strict=True))
