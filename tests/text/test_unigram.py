"""Sampling of unigram models against SentencePiece's own, which can't be repeated in another process."""

import io
import random
from collections import Counter
from typing import Any

import pytest
import sentencepiece
from hypothesis import given
from hypothesis import strategies as st

from nmt_cli.text import unigram
from nmt_cli.text.pieces import Pieces
from nmt_cli.text.subwords import LONGEST_WORD
from nmt_cli.text.unigram import UnigramSampling

STEMS = "haus hund katze maus baum stadt fluss berg wald see".split()
WORDS = [stem + ending for stem in STEMS for ending in ("", "e", "er", "n", "chen", "es")]
LINES = [" ".join(random.Random(seed).choices(WORDS, weights=range(1, 61), k=9)) for seed in range(400)]
MODELS: dict[str, dict[str, Any]] = {
    "usual": {},
    "bytes": {"byte_fallback": True, "vocab_size": 336},
    "symbols": {"user_defined_symbols": ["hund", "au"], "vocab_size": 70},
    "blanks inside": {"split_by_whitespace": False},
    "blanks behind": {"treat_whitespace_as_suffix": True},
}
SURE, TIMES = 200.0, 4000


def model(**options: Any) -> bytes:
    out = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        **{"vocab_size": 80, **options}, sentence_iterator=iter(LINES), model_writer=out, minloglevel=3
    )
    return out.getvalue()


USUAL = Pieces(model())


@pytest.mark.slow
@pytest.mark.parametrize("options", MODELS.values(), ids=MODELS)
def test_segmentations_are_as_frequent_as_sentencepieces_own(options: dict[str, Any]) -> None:
    proto = model(**options)
    theirs, ways = sentencepiece.SentencePieceProcessor(model_proto=proto), 0
    sampling = UnigramSampling(Pieces(proto), alpha=0.2)
    for text in ("hundchen", "ｈaus ☃☃x hu", "  see  wald"):
        drawn = (theirs.encode(text, enable_sampling=True, alpha=0.2, nbest_size=-1) for _ in range(TIMES))
        expected = Counter(map(tuple, drawn))
        counts = Counter(tuple(sampling.encode(text, seed)) for seed in range(TIMES))
        ways += len(expected)
        for way in expected.keys() | counts.keys():
            deviation = max(expected[way], counts[way], 9) ** 0.5
            assert abs(expected[way] - counts[way]) < 6 * deviation, way
    assert ways > 3


@pytest.mark.parametrize("options", MODELS.values(), ids=MODELS)
def test_with_a_large_alpha_lines_fall_into_their_likeliest_pieces(options: dict[str, Any]) -> None:
    pieces = Pieces(model(**options))
    sampling = UnigramSampling(pieces, SURE)
    for seed, line in enumerate(["haus ☃☃ maus", *LINES[:50]]):
        likeliest, second = pieces.likeliest(line, 2)
        if likeliest[0] - second[0] > 0.2:
            assert sampling.encode(line, seed) == pieces.encode(line)


@given(st.text("hausnd ☃\u2581", max_size=40), st.integers(0, 2**64 - 1))
def test_pieces_make_up_the_text(text: str, seed: int) -> None:
    drawn = UnigramSampling(USUAL, 0.1).encode(text, seed)
    assert USUAL.decode(drawn) == USUAL.decode(USUAL.encode(text))


def test_long_words_take_no_more_than_their_length() -> None:
    text = "haus" * LONGEST_WORD + " " + "☃" * 3 * LONGEST_WORD
    drawn = UnigramSampling(USUAL, 0.1).encode(text, 1)
    assert USUAL.decode(drawn).split()[0] == text.split()[0]


def test_a_line_depends_on_its_seed_and_on_nothing_that_came_before(monkeypatch: pytest.MonkeyPatch) -> None:
    warm = UnigramSampling(USUAL, 0.1)
    for seed, line in enumerate(LINES):
        warm.encode(line, seed)
    again = [warm.encode(line, seed) for seed, line in enumerate(LINES)]
    assert again == [UnigramSampling(USUAL, 0.1).encode(line, seed) for seed, line in enumerate(LINES)]
    assert again != [warm.encode(line, seed + 1) for seed, line in enumerate(LINES)]
    monkeypatch.setattr(unigram, "MOST_CHOICES", 50)  # the most of which soon there are
    assert again == [UnigramSampling(USUAL, 0.1).encode(line, seed) for seed, line in enumerate(LINES)]


def test_no_more_is_kept_than_there_is_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unigram, "MOST_CHOICES", 100)
    sampling = UnigramSampling(USUAL, 0.1)
    for seed, line in enumerate(LINES):
        sampling.encode(line, seed)
    kept = sum(len(pieces) for choices in sampling._words.values() for _, pieces in choices)
    assert 0 < kept <= 100
