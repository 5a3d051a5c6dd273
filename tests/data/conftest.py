"""Splits of artificial tokens."""

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from nmt_cli.data.dataset import Sentences, Split


def _sentences(lengths: Sequence[int], first: int) -> Sentences:
    offsets = np.zeros(len(lengths) + 1, dtype=np.int64)
    np.cumsum(lengths, out=offsets[1:])
    tokens = (first + np.arange(offsets[-1])).astype(np.uint16)
    tokens[offsets[1:] - 1] = 0
    return Sentences(tokens, offsets)


@pytest.fixture(scope="session")
def split_of() -> Callable[[Sequence[tuple[int, int]]], Split]:
    """Return a function that makes a split of pairs with these (source, target) lengths."""
    return lambda lengths: Split(
        "train", "train", _sentences([s for s, _ in lengths], 1), _sentences([t for _, t in lengths], 20_000)
    )


@pytest.fixture(scope="session")
def natural_lengths() -> list[tuple[int, int]]:
    """Return the lengths of 20,000 pairs with the distribution of news sentences: mean 28, at most 250."""
    draw = np.random.default_rng(1)
    source = draw.lognormal(np.log(28) - 0.25, 0.7, 20_000)
    target = source * draw.lognormal(0, 0.2, 20_000)
    sides = (np.clip(side.round(), 1, 250).astype(int).tolist() for side in (source, target))
    return list(zip(*sides, strict=True))
