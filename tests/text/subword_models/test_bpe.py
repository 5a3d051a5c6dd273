"""Byte-pair encoding, compared with subword-nmt, also for texts that contain its markers."""

import io
import random
from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from subword_nmt.apply_bpe import BPE, read_vocabulary

from nmt_cli.errors import UserError
from nmt_cli.text.subword_models.bpe import Bpe, parse_codes
from nmt_cli.text.subword_models.merges import learn_codes
from nmt_cli.text.subword_models.subwords import UNKNOWN_PIECE
from tests.text.rare import too_rare

SYLLABLES = "ka ke ki ko ku ma me mi mo mu schä schö ß n".split()
LEXICON = ["".join(random.Random(seed).choices(SYLLABLES, k=1 + seed % 4)) for seed in range(120)]
LINES = [
    " ".join(random.Random(seed).choices(LEXICON, weights=range(1, 121), k=8)) + " ." for seed in range(400)
]
MARKED = ["low@@ er", "@@ @@a a@@", "x</w> </w> </w>y lower</w>", "</s> <unk> </s>x", "low </ow </w low"] * 30


def counted(lines: Sequence[str]) -> Counter[str]:
    return Counter(word for line in lines for word in line.split())


def alphabet_of(lines: Sequence[str]) -> str:
    return "".join(sorted(set("".join(lines)) - {" "}))


def bpe(codes: str, lines: Sequence[str], byte_fallback: bool = False) -> Bpe:
    return Bpe(codes, alphabet_of(lines), byte_fallback)


def shown(model: Bpe, ids: Sequence[int]) -> list[str]:
    return [model.entries[i] for i in ids]


@pytest.fixture(scope="module")
def codes() -> str:
    return learn_codes(counted(LINES), 120)


@pytest.mark.parametrize("merges", [0, 1, 30, 120])
def test_words_have_the_pieces_of_subword_nmt(codes: str, merges: int) -> None:
    first_codes = "".join(codes.splitlines(keepends=True)[: merges + 1])
    theirs, ours = BPE(io.StringIO(codes), merges=merges), bpe(first_codes, LINES)
    for line in [*LINES, "kakakakaka schäschäschä mumumu kkkkk . .. ..."]:
        ids = ours.encode(line)
        assert shown(ours, ids) == theirs.segment(line).split()
        assert ours.decode(ids) == line


def test_the_first_of_two_equal_merges_counts() -> None:
    codes = "#version: 0.2\na b\nb c\nb d</w>\na b\n"
    ours = bpe(codes, ["abcd"])
    for word in ("abcd", "abd", "bcd"):
        assert shown(ours, ours.encode(word)) == BPE(io.StringIO(codes)).segment(word).split()


@pytest.mark.parametrize("min_count", [2, 20, 200, 10**6])
def test_rare_pieces_are_split_as_subword_nmts_vocabulary_filter_does(codes: str, min_count: int) -> None:
    plain = bpe(codes, LINES)
    rare = too_rare(plain, LINES, min_count)
    ours = Bpe(codes, alphabet_of(LINES), too_rare=rare)
    counts = Counter(piece for line in LINES for piece in BPE(io.StringIO(codes)).segment(line).split())
    listed = io.StringIO("".join(f"{piece} {count}\n" for piece, count in counts.items()))
    vocabulary = read_vocabulary(listed, min_count) or {"a word that is nowhere, since none means no filter"}
    theirs = BPE(io.StringIO(codes), vocab=vocabulary)
    for line in LINES:
        ids = ours.encode(line)
        assert shown(ours, ids) == theirs.segment(line).split()
        assert UNKNOWN_PIECE not in ids
        assert ours.decode(ids) == line


def test_markers_written_in_the_text_are_learnt_and_encoded_as_text() -> None:
    model = bpe(learn_codes(counted(MARKED), 40), MARKED)
    for line in MARKED:
        ids = model.encode(line)
        assert min(ids) >= 0
        assert model.decode(ids) == line


def test_words_with_the_learners_end_marker_are_not_learnt_from() -> None:
    without = [" ".join(word for word in line.split() if "</w>" not in word) for line in MARKED]
    assert learn_codes(counted([*LINES, *MARKED]), 150) == learn_codes(counted([*LINES, *without]), 150)


MARKED_WORDS = st.lists(st.sampled_from(["</w>", "@@", "</", "w>", "a", "w", "<"]), min_size=1).map("".join)


@given(words=st.lists(MARKED_WORDS))
def test_words_of_markers_come_back(words: list[str]) -> None:
    lines = [" ".join(words), *MARKED]
    model = bpe(learn_codes(counted([*lines, *lines]), 40), lines)
    assert model.decode(model.encode(lines[0])) == lines[0]


def test_a_piece_inside_a_word_is_not_the_one_at_its_end(codes: str) -> None:
    model = bpe(codes, LINES)
    assert model.encode("k k") == [model.encode("k")[0]] * 2
    assert model.encode("kk")[0] != model.encode("kk")[-1]
    assert len(set(model.entries)) == len(model.entries)


@pytest.mark.parametrize("byte_fallback", [False, True])
def test_very_long_words_come_back(codes: str, byte_fallback: bool) -> None:
    model = bpe(codes, LINES, byte_fallback)
    for word in ["ka" * 99, "ka" * 100, "ka" * 101, "schö" * 25_000]:
        assert model.decode(model.encode(f"{word} {word}")) == f"{word} {word}"


def test_characters_outside_the_alphabet_are_unknown_one_by_one_or_bytes(codes: str) -> None:
    plain, spelling = bpe(codes, LINES), bpe(codes, LINES, byte_fallback=True)
    assert plain.encode("字ka").count(UNKNOWN_PIECE) == 1
    assert plain.decode(plain.encode("字 ka")) == "\u2047 ka"
    assert UNKNOWN_PIECE not in spelling.encode("字ka 字 ka字")
    assert spelling.decode(spelling.encode("字ka 字 ka字")) == "字ka 字 ka字"


def test_bytes_that_are_not_utf8_can_be_decoded(codes: str) -> None:
    model = bpe(codes, LINES, byte_fallback=True)
    assert model.decode([0xE5, *model.encode("ka")]) == "\ufffdka"


@pytest.mark.parametrize("lines", [[], [""], ["a b c"], ["ab cd"], ["</w>"]])
def test_a_text_without_pairs_gives_codes_without_merges(lines: list[str]) -> None:
    assert parse_codes(learn_codes(counted(lines), 5)) == []


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_codes_with_any_line_ends_are_read(end: str) -> None:
    assert parse_codes(end.join(["#version: 0.2", "l o", "lo w</w>", ""])) == [("l", "o"), ("lo", "w</w>")]


@pytest.mark.parametrize(
    ("codes", "message"),
    [
        ("", "must start with '#version: 0.2'"),
        ("l o\nlo w</w>\n", "must start with '#version: 0.2'"),
        ("#version: 0.1\nl o\n", "subword-nmt 0.2 or newer"),
        ("#version: 0.2\nl o\nlow\n", "line 3 of the codes is 'low'"),
        ("#version: 0.2\nl o w\n", "line 2 of the codes is 'l o w'"),
        ("#version: 0.2\n\nl o\n", "line 2 of the codes is ''"),
    ],
)
def test_an_error_in_codes_names_the_line(codes: str, message: str) -> None:
    with pytest.raises(UserError) as caught:
        Bpe(codes, "low")
    assert message in str(caught.value)


def test_texts_without_spaces_are_not_cached() -> None:
    model = Bpe("#version: 0.2\nl o\nlo w</w>\n", "low")
    model.encode("low" * 20 + " low")
    assert [*model._cache] == ["low"]
