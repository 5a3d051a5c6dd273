"""Compute perplexity."""

import math


def perplexity(nll: float, units: int) -> float:
    """Return exp(`nll` / `units`), the total loss over tokens or words. Infinity for a mean from 700."""
    # math.exp raises from about 710 on.
    mean = nll / units
    return math.exp(mean) if mean < 700 else math.inf
