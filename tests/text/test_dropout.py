"""BPE-dropout against subword-nmt's own, which is slow and can't be seeded by line."""

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from subword_nmt.apply_bpe import encode

from nmt_cli.text import dropout
from nmt_cli.text.bpe import Bpe, parse_codes
from nmt_cli.text.dropout import BpeDropout
from nmt_cli.text.merges import learn_codes

NEARLY_NEVER = 1e-12
TIMES = 20_000

WORDS = ["".join(random.Random(seed).choices("abcde", k=2 + seed % 9)) for seed in range(60)]
WORDS += ["aaaaa", "abababab", "bcbcabc"]
LINES = [" ".join(random.Random(seed).choices(WORDS, k=8)) for seed in range(300)]
CODES = learn_codes(Counter(word for line in LINES for word in line.split()), 60)


def bpe(too_rare: tuple[int, ...] = (), byte_fallback: bool = False) -> Bpe:
    return Bpe(CODES, "abcde", byte_fallback, too_rare)


@given(st.lists(st.text("abcdexy<>/w", min_size=1, max_size=12), max_size=6), st.integers(0, 2**64 - 1))
def test_with_no_merge_left_out_words_fall_into_their_usual_pieces(words: list[str], seed: int) -> None:
    text = " ".join([*words, "abababab", "aaaaa", "a" * 300])
    for model in (bpe(), bpe(byte_fallback=True), bpe(too_rare=tuple(range(30, 50)))):
        assert BpeDropout(model, NEARLY_NEVER).encode(text, seed) == model.encode(text)


@pytest.mark.slow
@pytest.mark.parametrize("rate", [0.1, 0.5])
@pytest.mark.parametrize("word", ["abababab", "aaaaa", max(WORDS, key=len)])
def test_words_fall_apart_as_often_as_in_subword_nmt(
    word: str, rate: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(random, "random", random.Random(1).random)
    ranks = {merge: rank for rank, merge in reversed(list(enumerate(parse_codes(CODES))))}
    theirs = Counter(tuple(encode(word, ranks, {}, None, "", (0, 2), {}, dropout=rate)) for _ in range(TIMES))
    ours, model = BpeDropout(bpe(), rate), bpe()
    pieces = [tuple(model.entries[i].removesuffix("@@") for i in ours.encode(word, n)) for n in range(TIMES)]
    counts = Counter(pieces)
    assert len(counts) > 3
    for found in theirs.keys() | counts.keys():
        deviation = max(theirs[found], counts[found], 9) ** 0.5
        assert abs(theirs[found] - counts[found]) < 6 * deviation, found


def test_a_line_depends_on_its_seed_and_on_nothing_that_came_before(monkeypatch: pytest.MonkeyPatch) -> None:
    warm = BpeDropout(bpe(), 0.3)
    for seed, line in enumerate(LINES):
        warm.encode(line, seed)
    again = [warm.encode(line, seed) for seed, line in enumerate(LINES)]
    assert again == [BpeDropout(bpe(), 0.3).encode(line, seed) for seed, line in enumerate(LINES)]
    assert again != [warm.encode(line, seed + 1) for seed, line in enumerate(LINES)]
    monkeypatch.setattr(dropout, "MOST_STATES", 40)  # the most of which soon there are
    assert again == [BpeDropout(bpe(), 0.3).encode(line, seed) for seed, line in enumerate(LINES)]


@given(st.text("abcde <>", max_size=40), st.integers(0, 2**64 - 1))
def test_pieces_make_up_the_text_whatever_is_left_out(text: str, seed: int) -> None:
    model = Bpe(CODES, "abcde<>")
    prepared = " ".join(text.split())
    assert model.decode(BpeDropout(model, 0.6).encode(prepared, seed)) == prepared


def test_no_more_is_kept_than_there_is_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dropout, "MOST_STATES", 100)
    ours = BpeDropout(bpe(), 0.5)
    for seed, line in enumerate(LINES):
        ours.encode(line, seed)
    kept = sum(len(path.course) for path in ours._words.values())
    assert 0 < kept <= 100
