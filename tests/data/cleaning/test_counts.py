"""Counts, samples and histograms do not depend on the order of the work."""

import json
import random

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from nmt_cli.data.cleaning.counts import (
    MOST_RATIO,
    MOST_WORDS,
    RATIO_STEP,
    SAMPLES,
    Shape,
    Shapes,
    Tally,
    words_of,
)

LENGTHS = st.lists(st.tuples(st.integers(1, 600), st.integers(1, 600)), min_size=1, max_size=20)


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


@given(st.lists(st.lists(st.text("aß語", min_size=1, max_size=3), min_size=1, max_size=5), max_size=5))
def test_words_are_counted_line_by_line(lines: list[list[str]]) -> None:
    encoded = [f"{' '.join(words)}\n".encode() for words in lines]
    lengths = np.array(list(map(len, encoded)), np.int64)
    assert words_of(b"".join(encoded), lengths).tolist() == list(map(len, lines))


@given(LENGTHS)
def test_a_threshold_keeps_as_many_pairs_as_the_filter_would(pairs: list[tuple[int, int]]) -> None:
    shape = Shape()
    for part in (pairs[:3], pairs[3:]):
        shape.add(*np.array(part, np.int64).reshape(-1, 2).T)
    for limit in (1, 10, 250, MOST_WORDS - 1):
        assert shape.words[: limit + 1].sum() == sum(max(pair) <= limit for pair in pairs)
    for ratio in (1.0, 1.5, 2.0, 9.0):
        count = sum(max(pair) <= ratio * min(pair) for pair in pairs)
        assert shape.ratios[: int(ratio * RATIO_STEP) + 1].sum() == count
    assert len(shape.ratios) == MOST_RATIO * RATIO_STEP + 1


def test_the_sample_of_scores_does_not_depend_on_the_order() -> None:
    scores = np.arange(5000, dtype=np.float32)
    scores[7] = np.nan
    numbers = np.arange(1, 5001)
    together, halves = Shapes(), Shapes()
    together.add_scores(numbers, scores)
    for part in (slice(3000, 5000), slice(0, 3000)):
        half = Shapes()
        half.add_scores(numbers[part], scores[part])
        halves.merge(Shapes.of(json.loads(json.dumps(half.state()))))
    sample = together.described()["scores"]
    assert sample == halves.described()["scores"] == sorted(sample)
    assert len(sample) == 2000
    assert abs(np.mean(sample) - 2500) < 50
