"""Layouts say where the segments of a flat tensor lie."""

from itertools import accumulate

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given

from nmt_cli.ragged import Groups, Layout


@given(lengths=st.lists(st.integers(0, 20), max_size=12))
def test_a_layout_tells_of_every_token_where_it_stands(lengths: list[int]) -> None:
    layout = Layout.of(lengths)
    tokens = [(segment, position) for segment, n in enumerate(lengths) for position in range(n)]
    assert layout.starts.tolist() == [0, *accumulate(lengths)]
    assert list(zip(layout.segments.tolist(), layout.positions.tolist(), strict=True)) == tokens
    assert layout.lengths.tolist() == lengths
    assert layout.longest == max(lengths, default=0)


@given(lengths=st.lists(st.integers(0, 20), max_size=12))
def test_slices_cut_a_flat_tensor_into_its_segments(lengths: list[int]) -> None:
    layout = Layout.of(lengths)
    parts = [layout.segments[part] for part in layout.slices()]
    assert [len(part) for part in parts] == lengths
    assert all((part == segment).all() for segment, part in enumerate(parts))


@given(lengths=st.lists(st.integers(0, 20), max_size=12), segments=st.integers(1, 5))
def test_parts_are_layouts_of_a_few_segments_each(lengths: list[int], segments: int) -> None:
    layout = Layout.of(lengths)
    parts = list(layout.parts(segments))
    assert [length for _, part in parts for length in part.lengths.tolist()] == lengths
    assert all(len(part.lengths) <= segments for _, part in parts)
    for number, (where, part) in enumerate(parts):
        assert (layout.segments[where] - number * segments).tolist() == part.segments.tolist()
        assert layout.positions[where].tolist() == part.positions.tolist()
        assert part.longest == part.lengths.max()


@pytest.mark.parametrize(("longest", "expected"), [(None, 5), (3, 5), (8, 8)])
def test_longest_is_rounded_up_but_never_below_a_length(longest: int | None, expected: int) -> None:
    assert Layout.of([2, 5, 0], longest).longest == expected


def test_every_tensor_is_int32_and_owns_its_memory() -> None:
    lengths = np.array([2, 3], dtype=np.int32)
    layout = Layout.of(lengths)
    lengths[:] = 9
    assert layout.lengths.tolist() == [2, 3]
    tensors = (layout.starts, layout.segments, layout.positions, layout.lengths)
    assert {x.dtype for x in tensors} == {torch.int32}


def test_lengths_stay_on_the_host_when_a_layout_moves() -> None:
    layout = Layout.of([2, 3], longest=4)
    moved = layout.to("meta")
    assert {x.device.type for x in (moved.starts, moved.segments, moved.positions)} == {"meta"}
    assert moved.lengths.tolist() == [2, 3] and moved.longest == 4


def shown(groups: Groups | None) -> list[tuple[int, ...]]:
    """Of each group where its queries begin and how many there are, and the same of its keys."""
    assert groups is not None
    return [tuple(row) for row in groups.places.view(-1, 4).tolist()]


def packed(pairs: list[tuple[int, int]]) -> list[tuple[int, ...]]:
    """The groups of these lengths, made one pair after another."""
    groups: list[tuple[int, ...]] = []
    for q, k in pairs:
        q_start, q_rows, k_start, k_rows = groups[-1] if groups else (0, 0, 0, 0)
        if groups and q_rows + q <= 64 and k_rows + k <= 64:
            groups[-1] = (q_start, q_rows + q, k_start, k_rows + k)
        else:
            groups.append((q_start + q_rows, q, k_start + k_rows, k))
    return groups


@given(pairs=st.lists(st.tuples(st.integers(0, 150), st.integers(0, 150)), max_size=30))
def test_neighbours_share_a_group_as_long_as_they_fit_and_groups_come_by_size(
    pairs: list[tuple[int, int]],
) -> None:
    q, k = (Layout.of([pair[side] for pair in pairs]) for side in (0, 1))
    together = packed(pairs)
    small = [row for row in together if max(row[1], row[3]) <= 64]
    middle = [row for row in together if 64 < max(row[1], row[3]) <= 128]
    large = [row for row in together if max(row[1], row[3]) > 128]
    empty = [(0, 0, 0, 0)] * (len(pairs) - len(together))
    found = q.grouped(k).pair_groups
    assert found and shown(found) == small + middle + large + empty
    most = [max((row[side] for row in together), default=0) for side in (1, 3)]
    ends = [len(small), len(small + middle), len(together)]
    assert found.counts.tolist() == [0, ends[0], ends[0], ends[1], ends[1], ends[2], *most]
    assert shown(q.grouped().groups) == shown(q.grouped(q).pair_groups)


def test_groups_move_with_their_layout_but_for_their_counts() -> None:
    moved = Layout.of([2, 3]).grouped(Layout.of([4, 1])).to("meta")
    for groups in (moved.groups, moved.pair_groups):
        assert (
            groups
            and groups.places.device.type == "meta"
            and groups.counts.tolist() == [0, 1, 1, 1, 1, 1, 5, 5]
        )
