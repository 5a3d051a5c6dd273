"""Micro-batches have the tokens of their pairs, followed by filler."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from nmt_cli.data.batching.batch import MicroBatch, assemble, halved
from nmt_cli.data.batching.filler import Rounding
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
def test_every_segment_ends_with_an_end_token(
    split_of: SplitOf, lengths: Lengths, rounding: Rounding | None
) -> None:
    batch = assemble(split_of(lengths), np.arange(len(lengths)), rounding)
    for tokens, layout in ((batch.source_tokens, batch.source), (batch.target_tokens, batch.target)):
        assert len(tokens) == layout.starts[-1]
        assert not tokens[layout.starts[1:] - 1].any()


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
