"""Durations, sizes and numbers of things as people read them."""

import pytest

from nmt_cli.units import counted, duration, size


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        *((0, "0 s"), (0.04, "0 s"), (0.34, "0.3 s"), (9.96, "10 s"), (47.2, "47 s")),
        *((60, "1 min"), (100, "1.7 min"), (720, "12 min"), (3600, "1 h"), (19_080, "5.3 h")),
        *((47.4 * 3600, "47 h"), (55.2 * 3600, "2.3 days"), (6_120_000, "71 days"), (1e9, "11,574 days")),
    ],
)
def test_a_duration_has_two_digits_and_a_unit_that_fits(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 bytes"), (870, "870 bytes"), (3_050_000, "3 MB"), (7_250_000_000, "7.2 GB"), (2**40, "1,100 GB")],
)
def test_a_size_has_two_digits_and_a_unit_that_fits(count: int, text: str) -> None:
    assert size(count) == text


def test_a_noun_is_singular_only_after_one() -> None:
    assert [counted(count, "line") for count in (0, 1, 2000)] == ["0 lines", "1 line", "2,000 lines"]
