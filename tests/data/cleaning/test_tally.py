"""Counts and samples do not depend on the order of the work."""

import random

from nmt_cli.data.cleaning.tally import SAMPLES, Tally


def tally(numbers: list[int]) -> Tally:
    found = Tally()
    for number in numbers:
        found.add("too long", number, f"source {number}", "t" * 500)
    return found


def test_the_same_pairs_are_samples_in_whatever_order_and_parts_they_come() -> None:
    numbers = list(range(1, 500))
    whole = tally(numbers)
    random.Random(3).shuffle(numbers)
    parts = Tally()
    for start in range(0, len(numbers), 77):
        parts.merge(tally(numbers[start : start + 77]))
    assert parts == whole and whole.counts["too long"] == 499


def test_samples_are_few_short_and_from_all_over_the_corpus() -> None:
    samples = tally(list(range(1, 10_001))).samples["too long"]
    assert len(samples) == SAMPLES and {len(sample.target) for sample in samples} == {200}
    assert len({sample.number // 2500 for sample in samples}) >= 3
