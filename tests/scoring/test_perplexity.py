"""Perplexity is the exponential of a mean, or infinity."""

import math

import pytest

from nmt_cli.scoring.perplexity import perplexity


def test_it_is_the_exponential_of_the_mean_loss() -> None:
    assert perplexity(3 * math.log(7.0), 3) == pytest.approx(7.0, rel=1e-12)


def test_guessing_among_equals_is_as_hard_as_there_are_of_them() -> None:
    assert perplexity(-5 * math.log(1 / 4000), 5) == pytest.approx(4000.0, rel=1e-12)


@pytest.mark.parametrize(
    ("nll", "finite"), [(699.0, True), (701.0, False), (1e300, False), (math.inf, False)]
)
def test_what_no_float_can_hold_is_infinite(nll: float, finite: bool) -> None:
    assert math.isfinite(perplexity(nll, 1)) is finite
