"""BPE-dropout, compared with subword-nmt, which is slow and can't be seeded per line, and SentencePiece."""

import random
from collections import Counter
from itertools import pairwise
from typing import Any

import pytest
import sentencepiece
from hypothesis import given
from hypothesis import strategies as st
from subword_nmt.apply_bpe import encode

from nmt_cli.text.subword_models import bpe_dropout
from nmt_cli.text.subword_models.bpe import Bpe, parse_codes
from nmt_cli.text.subword_models.bpe_dropout import BpeDropout
from nmt_cli.text.subword_models.merges import learn_codes
from nmt_cli.text.subword_models.pieces import Pieces
from nmt_cli.text.subword_models.subwords import LONGEST_WORD
from nmt_cli.text.subword_models.surfaces import PieceMerging
from tests.text.conftest import assert_as_frequent, spm_train

NEARLY_NEVER = 1e-12
TIMES = 20_000

WORDS = ["".join(random.Random(seed).choices("abcde", k=2 + seed % 9)) for seed in range(60)]
WORDS += ["aaaaa", "abababab", "bcbcabc"]
LINES = [" ".join(random.Random(seed).choices(WORDS, k=8)) for seed in range(300)]
CODES = learn_codes(Counter(word for line in LINES for word in line.split()), 60)


def bpe(too_rare: tuple[int, ...] = (), byte_fallback: bool = False) -> Bpe:
    return Bpe(CODES, "abcde", byte_fallback, too_rare)


@given(st.lists(st.text("abcdexy<>/w", min_size=1, max_size=12), max_size=6), st.integers(0, 2**64 - 1))
def test_without_omitted_merges_words_have_their_usual_pieces(words: list[str], seed: int) -> None:
    text = " ".join([*words, "abababab", "aaaaa", "a" * 300])
    for model in (bpe(), bpe(byte_fallback=True), bpe(too_rare=tuple(range(30, 50)))):
        assert BpeDropout(model, NEARLY_NEVER).encode(text, seed) == model.encode(text)


@pytest.mark.slow
@pytest.mark.parametrize("rate", [0.1, 0.5])
@pytest.mark.parametrize("word", ["abababab", "aaaaa", max(WORDS, key=len)])
def test_segmentations_are_as_frequent_as_in_subword_nmt(
    word: str, rate: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(random, "random", random.Random(1).random)
    ranks = {merge: rank for rank, merge in reversed(list(enumerate(parse_codes(CODES))))}
    theirs = Counter(tuple(encode(word, ranks, {}, None, "", (0, 2), {}, dropout=rate)) for _ in range(TIMES))
    ours, model = BpeDropout(bpe(), rate), bpe()
    pieces = [tuple(model.entries[i].removesuffix("@@") for i in ours.encode(word, n)) for n in range(TIMES)]
    counts = Counter(pieces)
    assert len(counts) > 3
    assert_as_frequent(counts, theirs)


def test_a_line_depends_on_its_seed_and_on_nothing_that_came_before(monkeypatch: pytest.MonkeyPatch) -> None:
    warm = BpeDropout(bpe(), 0.3)
    for seed, line in enumerate(LINES):
        warm.encode(line, seed)
    again = [warm.encode(line, seed) for seed, line in enumerate(LINES)]
    assert again == [BpeDropout(bpe(), 0.3).encode(line, seed) for seed, line in enumerate(LINES)]
    assert again != [warm.encode(line, seed + 1) for seed, line in enumerate(LINES)]
    monkeypatch.setattr(bpe_dropout, "MOST_STATES", 40)  # reached soon
    small = BpeDropout(bpe(), 0.3)
    assert again == [small.encode(line, seed) for seed, line in enumerate(LINES)]
    assert 0 < sum(len(path.course) for path in small._words.values()) <= 40


@given(st.text("abcde <>", max_size=40), st.integers(0, 2**64 - 1))
def test_pieces_always_make_up_the_text(text: str, seed: int) -> None:
    model = Bpe(CODES, "abcde<>")
    prepared = " ".join(text.split())
    assert model.decode(BpeDropout(model, 0.6).encode(prepared, seed)) == prepared


def bpe_pieces(**options: Any) -> bytes:
    return spm_train(LINES, model_type="bpe", **{"vocab_size": 60, **options})


MODELS: dict[str, dict[str, Any]] = {
    "usual": {},
    "bytes": {"byte_fallback": True, "vocab_size": 316},
    "user-defined": {"user_defined_symbols": ["abc", "ab", "ca"]},
    "pieces with spaces inside": {"split_by_whitespace": False},
    "spaces at the end of pieces": {"treat_whitespace_as_suffix": True},
}


@pytest.mark.parametrize("options", MODELS.values(), ids=MODELS)
def test_without_omitted_merges_lines_have_the_pieces_of_sentencepiece(options: dict[str, Any]) -> None:
    proto = bpe_pieces(**options)
    theirs = sentencepiece.SentencePieceProcessor(model_proto=proto)
    ours = BpeDropout(PieceMerging(Pieces(proto)), NEARLY_NEVER)
    odd = ["ａbcab  ☃☃abca", "", " ", "aaaaaaaa \u2581a", "<0x41>a", " ".join(LINES[:2])]
    for seed, line in enumerate([*odd, *LINES[:100]]):
        assert ours.encode(line, seed) == theirs.encode(line)


def test_words_that_are_too_long_are_merged_in_parts() -> None:
    model = Pieces(bpe_pieces())
    for word in ("abcde" * 40, "abcde" * 400):
        few = BpeDropout(PieceMerging(model), NEARLY_NEVER).encode(word, 1)
        assert (
            model.decode(few) == word
            and len(few) < len(model.encode(word)) + 2 * len(word) // LONGEST_WORD + 2
        )


def by_hand(model: sentencepiece.SentencePieceProcessor, word: str, rate: float, draw: random.Random) -> Any:
    """Segment a word one merge at a time: always the first possible merge that is not omitted."""
    parts = list(word)
    while True:
        ids = [model.piece_to_id(left + right) for left, right in pairwise(parts)]
        merges = [(-model.get_score(i), at) for at, i in enumerate(ids) if i != model.unk_id()]
        remaining = [merge for merge in merges if draw.random() >= rate]
        if not remaining:
            return tuple(map(model.piece_to_id, parts))
        at = min(remaining)[1]
        parts[at : at + 2] = [parts[at] + parts[at + 1]]


@pytest.mark.slow
@pytest.mark.parametrize("rate", [0.1, 0.5])
def test_sentencepiece_words_are_segmented_as_often_as_by_hand(rate: float) -> None:
    proto, draw = bpe_pieces(), random.Random(1)
    theirs = sentencepiece.SentencePieceProcessor(model_proto=proto)
    ours, word = BpeDropout(PieceMerging(Pieces(proto)), rate), max(WORDS, key=len)
    expected = Counter(by_hand(theirs, "\u2581" + word, rate, draw) for _ in range(TIMES))
    counts = Counter(tuple(ours.encode(word, seed)) for seed in range(TIMES))
    assert len(expected) > 3
    assert_as_frequent(counts, expected)
