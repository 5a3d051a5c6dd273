"""Confidence from token probabilities, against held-out translations."""

import random
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmt_cli.scoring.confidence import BINS, Calibration, calibrated

GOOD, BAD = "the same text", "nothing equal"


def drawn(count: int, seed: int) -> tuple[list[float], list[str], list[str]]:
    """Return probabilities, translations and references. A translation with probability p is good with
    probability p squared."""
    draw = random.Random(seed)
    probabilities = [draw.random() for _ in range(count)]
    return probabilities, [GOOD if draw.random() < p * p else BAD for p in probabilities], [GOOD] * count


@pytest.mark.parametrize("seed", range(3))
def test_the_calibration_error_on_new_translations_is_small(seed: int) -> None:
    calibration = calibrated(*drawn(2000, seed))
    assert calibration
    probabilities, translations, _ = drawn(20_000, seed + 100)
    confidences = np.array([calibration(p) for p in probabilities])
    good = np.array([translation == GOOD for translation in translations])
    bins = np.minimum((confidences * 10).astype(int), 9)
    errors = [
        abs(confidences[bins == n].mean() - good[bins == n].mean()) * (bins == n).mean()
        for n in range(10)
        if (bins == n).any()
    ]
    assert sum(errors) <= 0.05


@given(st.lists(st.tuples(st.floats(0, 1), st.booleans()), min_size=50, max_size=120))
def test_confidence_ascends_from_0_to_1(pairs: list[tuple[float, bool]]) -> None:
    probabilities = [p for p, _ in pairs]
    calibration = calibrated(probabilities, [GOOD if good else BAD for _, good in pairs], [GOOD] * len(pairs))
    assert calibration and len(calibration.confidences) <= BINS
    values = [calibration(p) for p in sorted([0.0, *probabilities, 1.0])]
    assert values == sorted(values) and values[0] >= 0 and values[-1] <= 1
    assert Calibration.read(asdict(calibration)) == calibration


def test_few_translations_give_no_calibration() -> None:
    assert calibrated([0.5] * 49, [GOOD] * 49, [GOOD] * 49) is None


def test_confidence_is_linear_between_points() -> None:
    calibration = Calibration([0.2, 0.6], [0.1, 0.9])
    assert [round(calibration(p), 6) for p in (0.0, 0.2, 0.4, 0.6, 1.0)] == [0.1, 0.1, 0.5, 0.9, 0.9]


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"probabilities": [], "confidences": []},
        {"probabilities": [0.5], "confidences": ["a"]},
        {"probabilities": [0.5, 0.4], "confidences": [0.1, 0.2]},
        {"probabilities": [0.5], "confidences": [1.5]},
        {"probabilities": [0.5], "confidences": [0.1, 0.2]},
        {"probabilities": [float("nan")], "confidences": [0.1]},
    ],
)
def test_invalid_values_are_refused(values: Mapping[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"calibration|confidence"):
        Calibration.read(values)
