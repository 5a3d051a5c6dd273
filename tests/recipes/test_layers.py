"""The exponents and crossings that the comparison of layers computes from times."""

import pytest
import torch

from recipes.benchmarks import layers


@pytest.mark.parametrize("exponent", [0.0, 1.0, 1.5, 2.0])
def test_the_slope_is_the_exponent_of_a_power_law(exponent: float) -> None:
    assert layers.slope([(n, 0.3 * n**exponent) for n in (64, 128, 256, 512)]) == pytest.approx(exponent)


def test_the_crossing_of_two_curves_is_interpolated() -> None:
    lengths = (32, 64, 128, 256, 512)
    assert layers.crossing([(n, n**2, 100 * n) for n in lengths]) == "100"
    assert layers.crossing([(n, n**2, n) for n in lengths]) == "below 32"
    assert layers.crossing([(n, n**2, 1000 * n) for n in lengths]) == "beyond 512"


def test_additive_scores_are_those_of_each_pair_of_tokens_and_need_d_times_the_memory() -> None:
    torch.manual_seed(1)
    q, k = torch.randn(2, 1, 2, 5, 4).unbind()
    v = torch.randn(2, 4)
    with layers.LargestTensor() as additive:
        scores = layers.additive_scores(q, k, v)
    with layers.LargestTensor() as products:
        layers.dot_product_scores(q, k, v)
    for head in range(2):
        for row in range(5):
            for column in range(5):
                expected = v[head] @ (q[0, head, row] + k[0, head, column]).tanh()
                assert scores[0, head, row, column] == pytest.approx(float(expected), abs=1e-6)
    assert additive.bytes == 4 * products.bytes == 4 * 2 * 5 * 5 * 4


@pytest.mark.parametrize(
    ("n", "kernel", "dilated", "expected"),
    [
        (2, 3, False, 1),
        (10, 3, False, 5),
        (13, 7, False, 2),
        (9, 3, True, 2),
        (10, 3, True, 3),
        (28, 3, True, 4),
    ],
)
def test_contiguous_convolutions_need_layers_in_proportion_to_n_and_dilated_ones_to_its_logarithm(
    n: int, kernel: int, dilated: bool, expected: int
) -> None:
    assert layers.layers_needed(n, kernel, dilated) == expected
