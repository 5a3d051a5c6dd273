"""Confidence: the probability that a translation is good, from the probabilities of its tokens."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

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
        for one in points:
            if not isinstance(one, list) or not one or not all(type(number) is float for number in one):
                raise ValueError("the calibration has no lists of numbers")
            if sorted(one) != one or one[0] < 0 or not one[-1] <= 1 or len(one) != len(points[0] or ()):
                raise ValueError("the numbers of the calibration must ascend from 0 to 1, as two equal lists")
        return Calibration(*points)  # type: ignore[arg-type]  # checked above


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
    pairs = zip(translations, references, strict=True)
    scores = [metric.sentence_score(translation, [reference]).score for translation, reference in pairs]
    sums = np.stack([probabilities, np.array(scores) >= GOOD_CHRF, np.ones(len(scores))])
    order = np.argsort(probabilities, kind="stable")
    merged: list[NDArray[np.float64]] = []  # of each bin: the sum of probabilities, of good ones, the count
    for part in np.array_split(sums[:, order], min(BINS, len(order) // 10), axis=1):
        merged.append(part.sum(1))
        while len(merged) > 1 and merged[-2][1] / merged[-2][2] >= merged[-1][1] / merged[-1][2]:
            merged[-2:] = [merged[-2] + merged[-1]]
    probability_B, good_B, count_B = np.transpose(merged)
    return Calibration((probability_B / count_B).tolist(), (good_B / count_B).tolist())
