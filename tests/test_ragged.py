"""Layouts describe the segments of a flat tensor."""

from itertools import accumulate

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given

from nmt_cli.ragged import Layout


@given(lengths=st.lists(st.integers(0, 20), max_size=12))
def test_a_layout_has_the_segment_and_position_of_every_token(lengths: list[int]) -> None:
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
    for number, (tokens, part) in enumerate(parts):
        assert (layout.segments[tokens] - number * segments).tolist() == part.segments.tolist()
        assert layout.positions[tokens].tolist() == part.positions.tolist()
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
