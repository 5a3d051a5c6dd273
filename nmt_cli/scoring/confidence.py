"""Confidence: the probability that a translation is good, from the probabilities of its tokens."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

GOOD_CHRF = 50.0
"""A translation is good if its chrF2 against the reference is at least this."""

BINS = 20
MIN_TRANSLATIONS = 50
"""Minimum number of translations to learn from."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """A map from mean token probabilities to confidence, linear between its points."""

    probabilities: Sequence[float]
    """The geometric mean of the token probabilities at each point, ascending."""

    confidences: Sequence[float]
    """The share of good translations at each point, not descending."""

    def __call__(self, probability: float) -> float:
        """Return the confidence of a translation with this geometric mean of token probabilities."""
        return float(np.interp(probability, self.probabilities, self.confidences))

    @staticmethod
    def read(values: Mapping[str, Any]) -> "Calibration":
        """Return the calibration with these fields. Raise `ValueError` if they are not valid."""
        points = values.get("probabilities"), values.get("confidences")
        if not all(isinstance(one, list) and one and all(type(x) is float for x in one) for one in points):
            raise ValueError("the calibration has no lists of numbers")
        calibration = Calibration(*points)  # type: ignore[arg-type]  # checked above
        for numbers in (calibration.probabilities, calibration.confidences):
            ascends = sorted(numbers) == numbers and numbers[0] >= 0 and numbers[-1] <= 1
            if not ascends or len(numbers) != len(calibration.confidences):
                raise ValueError("the numbers of the calibration must ascend from 0 to 1, as two equal lists")
        return calibration


def calibrated(
    probabilities: Sequence[float], translations: Sequence[str], references: Sequence[str]
) -> Calibration | None:
    """Learn a calibration from translations with the geometric means of their token probabilities. Up to
    `BINS` bins have equal numbers of translations. Bins are merged until the share of good translations
    ascends. Return None for fewer than `MIN_TRANSLATIONS`."""
    if len(probabilities) < MIN_TRANSLATIONS:
        return None
    from sacrebleu.metrics.chrf import CHRF  # not needed to translate

    metric = CHRF()
    good = np.array(
        [
            metric.sentence_score(translation, [reference]).score >= GOOD_CHRF
            for translation, reference in zip(translations, references, strict=True)
        ],
        float,
    )
    order = np.argsort(probabilities, kind="stable")
    values, good = np.array(probabilities)[order], good[order]
    bins = min(BINS, len(values) // 10)
    merged: list[tuple[float, float, int]] = []  # sums of probabilities and of good ones, and the count
    for part in np.array_split(np.arange(len(values)), bins):
        merged.append((float(values[part].sum()), float(good[part].sum()), len(part)))
        while len(merged) > 1 and merged[-2][1] * merged[-1][2] >= merged[-1][1] * merged[-2][2]:
            last = merged.pop()
            merged[-1] = (merged[-1][0] + last[0], merged[-1][1] + last[1], merged[-1][2] + last[2])
    return Calibration([p / n for p, _, n in merged], [g / n for _, g, n in merged])
