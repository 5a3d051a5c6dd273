"""Models of characters and words, with and without byte fallback."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmt_cli.text.subword_models.characters_and_words import Characters, Words
from nmt_cli.text.subword_models.subwords import BYTES, UNKNOWN_PIECE


@pytest.mark.parametrize(
    ("model", "entries", "text", "pieces", "decoded"),
    [
        (Characters("ab "), ["a", "b", " "], "ab ba", [0, 1, 2, 1, 0], "ab ba"),
        (Characters("ab "), ["a", "b", " "], "a字b", [0, UNKNOWN_PIECE, 1], "a\u2047b"),
        (Characters("ab", True), [*BYTES, "a", "b"], "aé", [256, 0xC3, 0xA9], "aé"),
        (Words(["the", "</s>", "@@"]), ["the", "</s>", "@@"], "@@ the </s>", [2, 0, 1], "@@ the </s>"),
        (Words(["the", "end"]), ["the", "end"], "the new end", [0, UNKNOWN_PIECE, 1], "the \u2047 end"),
        (Words(["the"], True), [*BYTES, "", "the"], "é the", [0xC3, 0xA9, 256, 257], "é the"),
        (Characters(""), [], "", [], ""),
        (Words([]), [], "", [], ""),
    ],
)
def test_units_are_numbered_in_order_and_others_are_unknown_or_bytes(
    model: Characters | Words, entries: list[str], text: str, pieces: list[int], decoded: str
) -> None:
    assert model.entries == entries
    assert model.encode(text) == pieces
    assert model.decode(pieces) == decoded


TEXTS = st.lists(st.text(st.characters(exclude_categories=["Cs", "Z", "Cc"]), min_size=1)).map(" ".join)


@pytest.mark.parametrize("model", [Characters("abc ", True), Words(["a", "0", "ab"], True)], ids=type)
@given(text=TEXTS)
def test_any_text_comes_back_with_bytes(model: Characters | Words, text: str) -> None:
    assert model.decode(model.encode(text)) == text


@pytest.mark.parametrize("model", [Characters("ab", True), Words(["ab"], True)], ids=type)
def test_any_ids_decode_to_some_text(model: Characters | Words) -> None:
    everything = [UNKNOWN_PIECE, *range(len(model.entries) + 9), 0xC3]
    assert model.decode(everything).count("\u2047") >= 9
    assert model.decode([0xC3]) == "\ufffd"


def test_files_contain_the_entries() -> None:
    assert Characters("a字 ").files() == {"characters.txt": "a字 ".encode()}
    assert Words(["a", "字"]).files() == {"words.txt": "a\n字\n".encode()}
