"""Perplexity from a sum of losses."""

import math


def perplexity(nll: float, units: int) -> float:
    """The exponential of the mean loss for each unit (token or word); infinite where it is too large for a
    float."""
    # math.exp raises from about 710 on.
    mean = nll / units
    return math.exp(mean) if mean < 700 else math.inf
