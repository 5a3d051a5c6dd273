"""Models of characters and words, with and without byte fallback."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmt_cli.text.subword_models.subwords import BYTES, UNKNOWN_PIECE
from nmt_cli.text.subword_models.units import Characters, Words


def test_characters_are_numbered_in_the_order_of_the_alphabet() -> None:
    model = Characters("ab ")
    assert model.encode("ab ba") == [0, 1, 2, 1, 0]
    assert model.entries == ["a", "b", " "]


def test_words_are_numbered_in_their_order() -> None:
    model = Words(["the", "</s>", "@@"])
    assert model.encode("@@ the </s>") == [2, 0, 1]
    assert model.entries == ["the", "</s>", "@@"]


def test_a_character_without_entry_is_one_unknown() -> None:
    model = Characters("ab ")
    assert model.encode("a字b") == [0, UNKNOWN_PIECE, 1]
    assert model.decode([0, UNKNOWN_PIECE, 1]) == "a\u2047b"


def test_a_word_without_entry_is_one_unknown() -> None:
    model = Words(["the", "end"])
    assert model.encode("the new end") == [0, UNKNOWN_PIECE, 1]
    assert model.decode([0, UNKNOWN_PIECE, 1]) == "the \u2047 end"


def test_a_character_without_entry_is_spelt_in_bytes() -> None:
    model = Characters("ab", byte_fallback=True)
    assert model.entries == [*BYTES, "a", "b"]
    assert model.encode("aé") == [256, 0xC3, 0xA9]


def test_a_word_without_entry_is_spelt_in_bytes_and_ended() -> None:
    model = Words(["the"], byte_fallback=True)
    assert model.entries == [*BYTES, "", "the"]
    assert model.encode("é the") == [0xC3, 0xA9, 256, 257]


TEXTS = st.lists(st.text(st.characters(exclude_categories=["Cs", "Z", "Cc"]), min_size=1)).map(" ".join)


@given(text=TEXTS)
def test_any_text_comes_back_from_characters_and_bytes(text: str) -> None:
    model = Characters("abc ", byte_fallback=True)
    assert model.decode(model.encode(text)) == text


@given(text=TEXTS)
def test_any_words_come_back_from_words_and_bytes(text: str) -> None:
    model = Words(["a", "0", "ab"], byte_fallback=True)
    assert model.decode(model.encode(text)) == text


@pytest.mark.parametrize("model", [Characters("ab", True), Words(["ab"], True)], ids=type)
def test_any_ids_decode_to_some_text(model: Characters | Words) -> None:
    everything = [UNKNOWN_PIECE, *range(len(model.entries) + 9), 0xC3]
    assert model.decode(everything).count("\u2047") >= 9
    assert model.decode([0xC3]) == "\ufffd"


@pytest.mark.parametrize("model", [Characters(""), Words([])], ids=type)
def test_an_empty_text_has_no_pieces(model: Characters | Words) -> None:
    assert model.encode("") == []
    assert model.decode([]) == ""


def test_files_contain_the_entries() -> None:
    assert Characters("a字 ").files() == {"characters.txt": "a字 ".encode()}
    assert Words(["a", "字"]).files() == {"words.txt": "a\n字\n".encode()}
