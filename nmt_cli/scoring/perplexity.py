"""Compute perplexity."""

import math


def perplexity(nll: float, units: int) -> float:
    """Return exp(`nll` / `units`): total loss over number of tokens or words. Infinity from exp(700) on."""
    # math.exp raises from about 710 on.
    mean = nll / units
    return math.exp(mean) if mean < 700 else math.inf
