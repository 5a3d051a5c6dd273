"""Reports of line numbers."""

import random

import pytest

from nmt_cli.translation.checks.notes import Noted


@pytest.mark.parametrize(
    ("numbers", "expected"),
    [
        ([17], "line 17"),
        ([1500, 2], "lines 2, 1,500"),
        (random.Random(1).sample(range(1, 2001), 2000), "lines 1, 2, 3, 4, 5 and 1,995 more"),
    ],
    ids=["one", "two", "many"],
)
def test_the_lowest_line_numbers_are_listed(numbers: list[int], expected: str) -> None:
    lines = Noted()
    for number in numbers:
        lines.add(number)
    assert str(lines) == expected
