"""Perplexity from a sum of losses."""

import math


def perplexity(nll: float, units: int) -> float:
    """The exponential of the mean loss of a unit (a token or a word); infinite where that is no float."""
    mean = nll / units
    return math.exp(mean) if mean < 700 else math.inf
