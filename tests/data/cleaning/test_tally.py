"""Counts and samples do not depend on the order of the work."""

import random

from nmt_cli.data.cleaning.tally import SAMPLES, Tally


def tally(numbers: list[int]) -> Tally:
    result = Tally()
    for number in numbers:
        result.add("too long", number, f"source {number}", "t" * 500)
    return result


def test_samples_do_not_depend_on_order_and_parts() -> None:
    numbers = list(range(1, 500))
    expected = tally(numbers)
    random.Random(3).shuffle(numbers)
    parts = Tally()
    for start in range(0, len(numbers), 77):
        parts.merge(tally(numbers[start : start + 77]))
    assert parts == expected and expected.counts["too long"] == 499


def test_samples_are_few_short_and_spread_over_the_corpus() -> None:
    samples = tally(list(range(1, 10_001))).samples["too long"]
    assert len(samples) == SAMPLES and {len(sample.target) for sample in samples} == {200}
    assert len({sample.number // 2500 for sample in samples}) >= 3
