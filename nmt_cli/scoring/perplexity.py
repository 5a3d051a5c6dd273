"""Compute perplexity."""

import math


def perplexity(nll: float, units: int) -> float:
    """Return the exponential of the mean loss per unit (token or word).

    Return infinity if it is too large for a float.
    """
    # math.exp raises from about 710 on.
    mean = nll / units
    return math.exp(mean) if mean < 700 else math.inf
