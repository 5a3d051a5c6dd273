"""A report of where something was found: how often, and the first few places."""

import random

from nmt_cli.translation.checks.notes import Noted


def noted(*numbers: int) -> Noted:
    found = Noted()
    for number in numbers:
        found.add(number)
    return found


def test_few_lines_are_all_named() -> None:
    assert str(noted(17)) == "line 17"
    assert str(noted(1500, 2)) == "lines 2, 1,500"


def test_of_many_lines_the_first_are_named_in_whatever_order_they_come() -> None:
    numbers = random.Random(1).sample(range(1, 2001), 2000)
    assert str(noted(*numbers)) == "lines 1, 2, 3, 4, 5 and 1,995 more"
