"""The dropout mask depends only on the seed and the position of a probability."""

import math

import pytest
import torch
from torch import Tensor

from nmt_cli.attention.dropout_masks import keep_mask


def places(*sizes: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return all segments, heads, queries and keys, counted from 0, in one shape."""
    ranges = [torch.arange(size, dtype=torch.int32) for size in sizes]
    segments, heads, queries, keys = torch.meshgrid(*ranges, indexing="ij")
    return segments, heads, queries, keys


SEED = torch.tensor(5)
PLACES = places(3, 4, 20, 50)


@pytest.mark.parametrize("probability", [0.0, 0.1, 0.5, 0.9])
def test_the_share_that_is_dropped_is_the_probability(probability: float) -> None:
    dropped = ~keep_mask(SEED, *PLACES, probability)
    deviation = math.sqrt(probability * (1 - probability) / dropped.numel())
    assert abs(float(dropped.double().mean()) - probability) <= 4 * deviation


@pytest.mark.parametrize("axis", range(4), ids=["segments", "heads", "queries", "keys"])
def test_neighbours_along_every_axis_are_independent(axis: int) -> None:
    mask = keep_mask(SEED, *PLACES, 0.5).movedim(axis, 0)
    agreement = (mask[1:] == mask[:-1]).double()
    assert abs(float(agreement.mean()) - 0.5) <= 4 * 0.5 / math.sqrt(agreement.numel())


@pytest.mark.parametrize("other", [6, 5 + (1 << 32), -5, (1 << 63) - 1])
def test_every_bit_of_the_seed_counts(other: int) -> None:
    ours, theirs = keep_mask(SEED, *PLACES, 0.5), keep_mask(torch.tensor(other), *PLACES, 0.5)
    assert abs(float((ours == theirs).double().mean()) - 0.5) < 0.05


def test_an_element_of_the_mask_does_not_depend_on_order_and_shape() -> None:
    whole = keep_mask(SEED, *PLACES, 0.3)
    order = torch.randperm(whole.numel(), generator=torch.Generator().manual_seed(1))
    segments, heads, queries, keys = (x.flatten()[order] for x in PLACES)
    shuffled = keep_mask(SEED, segments, heads, queries, keys, 0.3)
    assert torch.equal(shuffled, whole.flatten()[order])
    segment, head, query, key = (torch.tensor(n, dtype=torch.int32) for n in (2, 1, 7, 33))
    assert keep_mask(SEED, segment, head, query, key, 0.3) == whole[2, 1, 7, 33]


def test_swapped_arguments_give_another_mask() -> None:
    mask = keep_mask(SEED, *places(8, 8, 8, 8), 0.5)
    for one, other in [(0, 1), (1, 2), (2, 3)]:
        assert abs(float((mask == mask.transpose(one, other)).double().mean()) - (0.5 + 0.5 / 8)) < 0.05


def test_weights_dropped_at_a_rate_are_dropped_at_higher_rates() -> None:
    little, much = keep_mask(SEED, *PLACES, 0.1), keep_mask(SEED, *PLACES, 0.4)
    assert not (much & ~little).any()


def test_the_mask_of_a_seed_never_changes() -> None:
    mask = keep_mask(SEED, *places(1, 1, 2, 16), 0.5)[0, 0].int().tolist()
    assert ["".join(map(str, row)) for row in mask] == ["1101011110110100", "0000000101001111"]
