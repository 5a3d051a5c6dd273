"""Words, and SentencePiece models of SentencePiece's own trainer."""

import io
import random
from collections import Counter
from collections.abc import Iterable
from typing import Any

import sentencepiece

STEMS = "haus hund katze maus baum stadt fluss berg wald see".split()
WORDS = [stem + ending for stem in STEMS for ending in ("", "e", "er", "n", "chen", "es")]
LINES = [" ".join(random.Random(seed).choices(WORDS, weights=range(1, 61), k=9)) for seed in range(400)]


def spm_train(lines: Iterable[str], **options: Any) -> bytes:
    """Return a model of SentencePiece's own trainer. Defaults are nmt_nfkc and the usual special tokens."""
    model = io.BytesIO()
    options = {"vocab_size": 80, "minloglevel": 3, **options}
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(lines), model_writer=model, **options)
    return model.getvalue()


def assert_as_frequent(counts: Counter[Any], expected: Counter[Any]) -> None:
    """Check that two samples of the same size differ by less than six standard deviations."""
    for item in expected.keys() | counts.keys():
        deviation = max(expected[item], counts[item], 9) ** 0.5
        assert abs(expected[item] - counts[item]) < 6 * deviation, item
