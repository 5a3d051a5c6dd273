"""Lengths of sentence pairs, real and drawn, and batches of them; a side's length counts its end mark."""

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
"""Batches of like length, by the share of the corpus's tokens that are in shorter pairs."""
NOISE = 1 / 8
"""How far training raises the length that a pair is sorted by, at random."""


def multi30k() -> Pairs | None:
    """English to German, in pieces of a joint SentencePiece vocabulary; None without NMT_DATA."""
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
    """Log-normal lengths, drawn with a fixed seed."""
    draw = np.random.default_rng(1)
    common = draw.standard_normal((WMT_PAIRS, 1)) * WMT_LIKENESS**0.5
    apart = draw.standard_normal((WMT_PAIRS, 2)) * (1 - WMT_LIKENESS) ** 0.5
    logarithms = np.log(WMT_MEAN) - WMT_SPREAD**2 / 2 + WMT_SPREAD * (common + apart)
    lengths: Pairs = np.exp(logarithms).round().clip(1, WMT_LONGEST).astype(np.int64)
    return lengths


def batches(pairs: Pairs, tokens: int) -> dict[str, Pairs]:
    """Batches of at most `tokens` on either side: cut from sorted pairs as in training, and a random one."""
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
    """The first pairs, as many as there is room for."""
    return pairs[: int((pairs.cumsum(0).max(1) <= tokens).sum())]
