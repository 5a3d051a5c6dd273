"""Sampling from unigram models, compared with SentencePiece, which is not reproducible across processes."""

import math
from collections import Counter, defaultdict
from functools import cache
from itertools import pairwise, product
from typing import Any

import pytest
import sentencepiece
from hypothesis import given
from hypothesis import strategies as st

from nmt_cli.text.subword_models import unigram
from nmt_cli.text.subword_models.pieces import Pieces
from nmt_cli.text.subword_models.surfaces import Surfaces
from nmt_cli.text.subword_models.unigram import UnigramSampling
from tests.text.conftest import LINES, assert_as_frequent, spm_train

MODELS: dict[str, dict[str, Any]] = {
    "usual": {},
    "bytes": {"byte_fallback": True, "vocab_size": 336},
    "user-defined": {"user_defined_symbols": ["hund", "au", "☃☃", "▁see", "x☃"], "vocab_size": 66},
    "pieces with spaces inside": {"split_by_whitespace": False},
    "spaces at the end of pieces": {"treat_whitespace_as_suffix": True},
}
SURE, TIMES = 200.0, 4000


@cache
def model(name: str) -> bytes:
    return spm_train(LINES, **MODELS[name])


USUAL, BYTES = Pieces(model("usual")), Pieces(model("bytes"))


def probabilities(sampling: UnigramSampling, word: str) -> dict[tuple[str, ...], float]:
    """Return the probability of each segmentation of a word."""
    choices = sampling._word(word)
    ways: list[dict[tuple[str, ...], float]] = [{(): 1.0}]
    for end, (shares, pieces) in enumerate(choices, start=1):
        steps = [right - left for left, right in pairwise((0.0, *shares, 1.0))]
        ways.append(
            {
                (*way, piece): before * step
                for piece, step in zip(pieces, steps, strict=True)
                for way, before in ways[end - len(piece)].items()
            }
        )
    return ways[-1]


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("text", ["hundin", "☃☃", "x☃☃a", "see☃☃x", "ｈaus", "<0x41>a"])
def test_segmentations_have_the_probabilities_of_sentencepiece(name: str, text: str) -> None:
    proto = model(name)
    theirs = sentencepiece.SentencePieceProcessor(model_proto=proto).nbest_encode_as_proto(text, 512).nbests
    weights = {tuple(piece.id for piece in way.pieces): math.exp(0.2 * way.score) for way in theirs}
    surfaces, sampling = Surfaces(Pieces(proto)), UnigramSampling(Pieces(proto), alpha=0.2)
    ours: dict[tuple[int, ...], float] = defaultdict(float)
    for ways in product(*(probabilities(sampling, word).items() for word in surfaces.words(text))):
        parts = [part for way, _ in ways for part in way]
        ours[tuple(surfaces.numbers(parts))] += math.prod(probability for _, probability in ways)
    assert ours.keys() == weights.keys()
    for way, weight in weights.items():
        assert math.isclose(ours[way], weight / sum(weights.values()), rel_tol=1e-4, abs_tol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_segmentations_are_as_frequent_as_in_sentencepiece(name: str) -> None:
    proto = model(name)
    theirs, ways = sentencepiece.SentencePieceProcessor(model_proto=proto), 0
    sampling = UnigramSampling(Pieces(proto), 0.2)
    for text in ("hundchen", "ｈaus ☃☃x hu", "  see  wald", "☃☃"):
        drawn = (theirs.encode(text, enable_sampling=True, alpha=0.2, nbest_size=-1) for _ in range(TIMES))
        expected = Counter(map(tuple, drawn))
        counts = Counter(tuple(sampling.encode(text, seed)) for seed in range(TIMES))
        ways += len(expected)
        assert_as_frequent(counts, expected)
    assert ways > 4


def test_pieces_that_are_too_rare_are_split() -> None:
    rare = {i for i, piece in enumerate(USUAL.entries) if piece and len(piece) > 3}
    pieces = Pieces(model("usual"), rare)
    drawn = {i for seed, line in enumerate(LINES) for i in UnigramSampling(pieces, 0.5).encode(line, seed)}
    assert drawn and not drawn & rare


@pytest.mark.parametrize("name", MODELS)
def test_a_large_alpha_gives_the_likeliest_segmentation(name: str) -> None:
    pieces = Pieces(model(name))
    sampling = UnigramSampling(pieces, SURE)
    for seed, line in enumerate(["haus ☃☃ maus", " ".join(LINES[:6]), "haus" * 100, *LINES[:50]]):
        scores = [way.score for way in pieces.processor.nbest_encode_as_proto(line, 2).nbests]
        if len(scores) < 2 or scores[0] - scores[1] > 0.2:
            assert sampling.encode(line, seed) == pieces.encode(line)


@given(st.text("hausnd ☃\u2581", max_size=40), st.integers(0, 2**64 - 1))
def test_pieces_make_up_the_text(text: str, seed: int) -> None:
    for pieces in (USUAL, BYTES):
        drawn = UnigramSampling(pieces, 0.1).encode(text, seed)
        assert pieces.decode(drawn) == pieces.decode(pieces.encode(text))


def test_a_line_depends_on_its_seed_and_on_nothing_that_came_before(monkeypatch: pytest.MonkeyPatch) -> None:
    warm = UnigramSampling(USUAL, 0.1)
    for seed, line in enumerate(LINES):
        warm.encode(line, seed)
    again = [warm.encode(line, seed) for seed, line in enumerate(LINES)]
    assert again == [UnigramSampling(USUAL, 0.1).encode(line, seed) for seed, line in enumerate(LINES)]
    assert again != [warm.encode(line, seed + 1) for seed, line in enumerate(LINES)]
    monkeypatch.setattr(unigram, "MOST_CHOICES", 50)  # reached soon
    small = UnigramSampling(USUAL, 0.1)
    assert again == [small.encode(line, seed) for seed, line in enumerate(LINES)]
    assert 0 < sum(len(pieces) for word in small._words.values() for _, pieces in word) <= 50
