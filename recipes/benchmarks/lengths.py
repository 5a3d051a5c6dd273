"""Lengths of real and random sentence pairs, with end tokens, and batches of them."""

import numpy as np
from numpy.typing import NDArray

from nmt_cli.data.dataset import Split, open_dataset
from recipes.benchmarks.machine import make_dataset, scratch

Pairs = NDArray[np.int64]
"""[pairs, 2]: the tokens of source and target."""

VOCABULARY = 10_000
WMT_PAIRS = 1_000_000
WMT_MEAN, WMT_LONGEST = 28, 250
WMT_SPREAD = 0.6
"""Standard deviation of the logarithm of a length."""
WMT_LIKENESS = 0.9
"""Correlation of the logarithms of both sides."""

WINDOWS = {"alike-short": 1 / 6, "alike-middle": 1 / 2, "alike-long": 5 / 6}
"""Batches of similar lengths, by the share of tokens in shorter pairs."""
NOISE = 1 / 8
"""Random noise in the lengths by which training sorts pairs."""


def of_split(split: Split) -> Pairs:
    """Return the source and target lengths of all pairs of `split`."""
    return np.stack([np.diff(side.offsets) for side in (split.source, split.target)], axis=1)


def multi30k() -> Pairs:
    """Return the lengths of Multi30k's training pairs in joint SentencePiece subwords."""
    with scratch() as folder:
        make_dataset(folder / "dataset", VOCABULARY)
        return of_split(open_dataset(folder / "dataset").splits["train"])


def wmt_like() -> Pairs:
    """Return log-normal lengths of pairs, like those in WMT, the same lengths each time."""
    draw = np.random.default_rng(1)
    common = draw.standard_normal((WMT_PAIRS, 1)) * WMT_LIKENESS**0.5
    apart = draw.standard_normal((WMT_PAIRS, 2)) * (1 - WMT_LIKENESS) ** 0.5
    logarithms = np.log(WMT_MEAN) - WMT_SPREAD**2 / 2 + WMT_SPREAD * (common + apart)
    lengths: Pairs = np.exp(logarithms).round().clip(1, WMT_LONGEST).astype(np.int64)
    return lengths


def batches(pairs: Pairs, tokens: int) -> dict[str, Pairs]:
    """Return batches of up to `tokens` per side by name: three cut from sorted pairs, and one random."""
    draw = np.random.default_rng(2)
    shuffled = draw.permutation(pairs)
    key = shuffled.sum(1) * (1 + NOISE * draw.random(len(shuffled)))
    ordered = shuffled[np.argsort(key, kind="stable")]
    shorter = ordered.sum(1).cumsum() / ordered.sum()
    cut = {
        name: _fitting(ordered[np.searchsorted(shorter, share) :], tokens) for name, share in WINDOWS.items()
    }
    return {**cut, "random": _fitting(shuffled, tokens)}


def _fitting(pairs: Pairs, tokens: int) -> Pairs:
    """Return the first pairs that have up to `tokens` tokens on each side together."""
    return pairs[: int((pairs.cumsum(0).max(1) <= tokens).sum())]
