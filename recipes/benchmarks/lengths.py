"""Lengths of real and random sentence pairs, with end tokens, and batches of them."""

import io
from os import environ
from pathlib import Path

import numpy as np
import sentencepiece
from numpy.typing import NDArray

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


def multi30k() -> Pairs | None:
    """Return English to German, in a joint SentencePiece vocabulary, or None without NMT_DATA."""
    if "NMT_DATA" not in environ:
        return None
    folder = Path(environ["NMT_DATA"]) / "multi30k"
    sides = [
        (folder / f"train.{lang}").read_text("utf-8").removesuffix("\n").split("\n") for lang in ("en", "de")
    ]
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(sides[0] + sides[1]), model_writer=model, vocab_size=VOCABULARY, minloglevel=2
    )
    pieces = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    return np.array([[len(line) + 1 for line in pieces.encode(side)] for side in sides]).T


def wmt_like() -> Pairs:
    """Return log-normal lengths, drawn with a fixed seed."""
    draw = np.random.default_rng(1)
    common = draw.standard_normal((WMT_PAIRS, 1)) * WMT_LIKENESS**0.5
    apart = draw.standard_normal((WMT_PAIRS, 2)) * (1 - WMT_LIKENESS) ** 0.5
    logarithms = np.log(WMT_MEAN) - WMT_SPREAD**2 / 2 + WMT_SPREAD * (common + apart)
    lengths: Pairs = np.exp(logarithms).round().clip(1, WMT_LONGEST).astype(np.int64)
    return lengths


def batches(pairs: Pairs, tokens: int) -> dict[str, Pairs]:
    """Return batches of up to `tokens` per side: three cut from sorted pairs as in training, one random."""
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
    """Return the first pairs, up to `tokens` per side."""
    return pairs[: int((pairs.cumsum(0).max(1) <= tokens).sum())]
