"""Reports of line numbers."""

import random

from nmt_cli.translation.checks.notes import Noted


def noted(*numbers: int) -> Noted:
    lines = Noted()
    for number in numbers:
        lines.add(number)
    return lines


def test_all_of_a_few_lines_are_listed() -> None:
    assert str(noted(17)) == "line 17"
    assert str(noted(1500, 2)) == "lines 2, 1,500"


def test_the_first_of_many_lines_are_listed_in_any_order_of_arrival() -> None:
    numbers = random.Random(1).sample(range(1, 2001), 2000)
    assert str(noted(*numbers)) == "lines 1, 2, 3, 4, 5 and 1,995 more"
