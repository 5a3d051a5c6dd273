"""The exponents and crossings that the comparison of layers computes from times."""

import pytest

from recipes.benchmarks import layers


@pytest.mark.parametrize("exponent", [0.0, 1.0, 1.5, 2.0])
def test_the_slope_is_the_exponent_of_a_power_law(exponent: float) -> None:
    assert layers.slope([(n, 0.3 * n**exponent) for n in (64, 128, 256, 512)]) == pytest.approx(exponent)


def test_the_crossing_of_two_curves_is_interpolated() -> None:
    lengths = (32, 64, 128, 256, 512)
    assert layers.crossing([(n, n**2, 100 * n) for n in lengths]) == "100"
    assert layers.crossing([(n, n**2, n) for n in lengths]) == "below 32"
    assert layers.crossing([(n, n**2, 1000 * n) for n in lengths]) == "beyond 512"
