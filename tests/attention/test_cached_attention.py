"""Attention over cached keys and values, against its definition."""

from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from nmt_cli.attention import attention
from nmt_cli.attention.cached_attention import Masked, Rows
from nmt_cli.attention.projections import Heads


def plain(rows: Rows, seen_BNM: Tensor, dtype: torch.dtype) -> Masked:
    return Masked.of(rows, seen_BNM, dtype, part=2)


def at_once(rows: Rows, seen_BNM: Tensor, dtype: torch.dtype) -> Masked:
    return Masked.of(rows, seen_BNM, dtype, part=0)


def by_definition(query_RHK: Tensor, keys_BHMK: Tensor, values_BHMV: Tensor, seen_BNM: Tensor) -> Tensor:
    """Compute the attention of each slot separately."""
    mixed = []
    for row, (sentence, slot) in enumerate(torch.cartesian_prod(*map(torch.arange, seen_BNM.shape[:2]))):
        nodes = seen_BNM[sentence, slot].nonzero()[:, 0]
        for head in range(query_RHK.shape[1]):
            scores = keys_BHMK[sentence, head, nodes] @ query_RHK[row, head] / query_RHK.shape[2] ** 0.5
            mixed.append(scores.softmax(0) @ values_BHMV[sentence, head, nodes])
    return torch.stack(mixed).view(len(query_RHK), -1)


@given(
    sizes=st.tuples(*(st.integers(1, most) for most in (5, 4, 3, 9, 20, 20))),
    seed=st.integers(0, 1000),
    data=st.data(),
)
@settings(max_examples=50)
@pytest.mark.parametrize(
    ("way", "dtype", "slack"),
    [
        (plain, torch.float64, 1e-12),
        (plain, torch.float32, 1e-5),
        (plain, torch.bfloat16, 0.1),
        (at_once, torch.float64, 1e-12),
        (at_once, torch.float32, 1e-5),
        (at_once, torch.bfloat16, 0.1),
    ],
)
def test_each_row_attends_to_the_nodes_of_its_mask_only(
    way: Callable[..., Masked],
    dtype: torch.dtype,
    slack: float,
    sizes: tuple[int, ...],
    seed: int,
    data: st.DataObject,
) -> None:
    sentences, slots, heads, nodes, key_width, value_width = sizes
    draw = torch.Generator().manual_seed(seed)
    seen = torch.rand(sentences, slots, nodes, generator=draw) < 0.5
    seen[:, :, 0] = True
    wide = torch.randn(sentences * slots, heads, key_width + 1, generator=draw).to(dtype)
    keys = torch.randn(sentences, heads, nodes + 2, key_width, generator=draw).to(dtype)
    values = torch.randn(sentences, heads, nodes + 2, value_width, generator=draw).to(dtype)
    in_use = sorted(data.draw(st.sets(st.integers(0, sentences * slots - 1), min_size=1)))
    rows = Rows.at(torch.tensor(in_use), sentences, slots)
    actual = way(rows, seen, dtype).attend(wide[rows.from_slots][:, :, 1:], keys, values)
    expected = by_definition(wide[:, :, 1:].double(), keys.double(), values.double(), seen)
    assert actual.dtype == dtype and len(actual) == len(rows.from_slots) and actual.isfinite().all()
    assert (actual[: len(in_use)] - expected[in_use]).abs().max() < slack


@pytest.mark.parametrize("number", [torch.nan, torch.inf, -torch.inf])
def test_nan_and_infinity_affect_their_own_row_only(number: float) -> None:
    rows, seen = Rows.at(torch.tensor([0, 1]), 2, 1), torch.ones(2, 1, 3, dtype=torch.bool)
    query, keys = torch.ones(2, 1, 4), torch.ones(2, 1, 3, 4)
    query[0, 0, 1] = number
    actual = plain(rows, seen, torch.float32).attend(query, keys, keys)
    assert actual[0].isnan().all() and (actual[1] == 1).all()


def test_new_keys_and_values_are_stored_at_their_nodes() -> None:
    torch.manual_seed(1)
    heads, rows = Heads(4, 8, 6), Rows.at(torch.arange(0, 30, 2)[:12], 5, 6)
    projected = torch.randn(16, 4 * (8 + 8 + 6))
    seen, nodes = torch.ones(5, 6, 15, dtype=torch.bool), torch.randperm(300)[: 12 * 4].view(12, 4)
    keys, values = (torch.zeros(5, 4, 15, width) for width in (8, 6))
    mixed = attention.attend_newest(projected, heads, nodes, keys, values, plain(rows, seen, torch.float32))
    assert mixed.shape == (16, 24)
    _, new_keys, new_values = torch.split(projected[:12], [32, 32, 24], dim=1)
    for cached, new in ((keys, new_keys), (values, new_values)):
        flat = cached.flatten(0, 2)
        assert torch.equal(flat[nodes.flatten()], new.reshape(48, -1))
        flat[nodes.flatten()] = 0
        assert not flat.any()
