"""Neighbouring segments share a group, for the fused kernels."""

import hypothesis.strategies as st
from hypothesis import given

from nmt_cli.attention.groups import Groups, grouped, groups_of
from nmt_cli.ragged import Layout


def rows_of(groups: Groups) -> list[tuple[int, ...]]:
    """Return the first query, the number of queries, the first key and the number of keys of each group."""
    return [tuple(row) for row in groups.ranges.view(-1, 4).tolist()]


def grouped_one_by_one(pairs: list[tuple[int, int]]) -> list[tuple[int, ...]]:
    """Return the groups of these lengths, made by appending one pair after another."""
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
    together = grouped_one_by_one(pairs)
    small = [row for row in together if max(row[1], row[3]) <= 64]
    middle = [row for row in together if 64 < max(row[1], row[3]) <= 128]
    large = [row for row in together if max(row[1], row[3]) > 128]
    empty = [(0, 0, 0, 0)] * (len(pairs) - len(together))
    groups = groups_of(q, k)
    assert rows_of(groups) == small + middle + large + empty
    most = [max((row[side] for row in together), default=0) for side in (1, 3)]
    ends = [len(small), len(small + middle), len(together)]
    assert groups.counts.tolist() == [0, ends[0], ends[0], ends[1], ends[1], ends[2], *most]
    assert rows_of(groups_of(q, q)) == rows_of(groups_of(q, Layout.of(q.lengths.numpy())))


def test_groups_move_with_their_layout_except_for_their_counts() -> None:
    moved = grouped(Layout.of([2, 3]), Layout.of([4, 1])).to("meta")
    for groups in (moved.groups, moved.pair_groups):
        assert isinstance(groups, Groups) and groups.ranges.device.type == "meta"
        assert groups.counts.tolist() == [0, 1, 1, 1, 1, 1, 5, 5]
