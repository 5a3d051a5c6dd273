"""Confidence: the probability that a translation is good, estimated from the probabilities of its tokens.

A translation is good if its chrF2 is high enough. A calibration maps token probabilities to the share of good
translations. It is learnt on a validation set.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nmt_cli.named_values import Values

GOOD_CHRF = 50.0
"""The minimum chrF2 of a good translation against its reference, from 0 to 100."""

BINS = 20
MIN_TRANSLATIONS = 50
"""The minimum number of translations from which a calibration is learnt."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """A map from token probabilities to confidence. It is linear between its points."""

    probabilities: Sequence[float]
    """At each point, the geometric mean of a translation's token probabilities. The numbers ascend."""

    confidences: Sequence[float]
    """At each point, the share of good translations. The numbers do not descend."""

    def __call__(self, probability: float) -> float:
        """Return the confidence of a translation, given the geometric mean of its token probabilities."""
        return float(np.interp(probability, self.probabilities, self.confidences))

    @staticmethod
    def read(values: Mapping[str, Any]) -> "Calibration":
        """Return the calibration with these fields, as read from JSON. Raise `ValueError` if they are not
        valid."""
        named = Values(values, ValueError, "confidence.")
        probabilities, confidences = (named.list_of(name, float) for name in ("probabilities", "confidences"))
        for one in (probabilities, confidences):
            # The points are those of a curve, which numpy interpolates without a check.
            if not one or sorted(one) != one or one[0] < 0 or one[-1] > 1 or len(one) != len(probabilities):
                raise ValueError("the numbers of the calibration must ascend from 0 to 1, as two equal lists")
        return Calibration(probabilities, confidences)


def calibrated(
    probabilities: Sequence[float], translations: Sequence[str], references: Sequence[str]
) -> Calibration | None:
    """Learn a calibration, or return None for less than `MIN_TRANSLATIONS` translations.

    `probabilities` has the geometric mean of each translation's token probabilities. The translations are
    sorted by it and split into up to `BINS` bins of equal size. Each bin becomes a point. Adjacent bins are
    merged until the share of good translations ascends.
    """
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
        # Pool adjacent violators: the isotonic regression of the shares.
        while len(merged) > 1 and merged[-2][1] / merged[-2][2] >= merged[-1][1] / merged[-1][2]:
            merged[-2:] = [merged[-2] + merged[-1]]
    probability_B, good_B, count_B = np.transpose(merged)
    return Calibration((probability_B / count_B).tolist(), (good_B / count_B).tolist())
