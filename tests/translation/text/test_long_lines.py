"""Splitting of long lines."""

import re
from collections.abc import Sequence
from functools import cache
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmt_cli.data.config import BatchConfig
from nmt_cli.model.config import ModelConfig
from nmt_cli.text.config import Kind, TextConfig, TokenizerConfig
from nmt_cli.text.normalize import Normalizer
from nmt_cli.text.subword_models.characters_and_words import Characters, Words
from nmt_cli.text.subword_models.subwords import Subwords
from nmt_cli.text.tokenizer import Tokenizer
from nmt_cli.text.tokenizers import Recipe, learn_tokenizers
from nmt_cli.text.vocabulary import Numbering
from nmt_cli.translation.text.long_lines import joined, longest_source, parts, split

LETTERS = "abcdefghijkl ABCDEFGHIJKL.!?;:,'\"。、日本"
SAMPLE = ["abc abd abe, abc. Abd!", "fgh fgi: fgh? klm \"klm\" 'k'", "日本。日、 本 ABCDEFGHIJKL"] * 20
SYMBOLS = ("<2de>", "<a-rather-long-symbol>")


def around(model: Subwords, symbols: Sequence[str] = ()) -> Tokenizer:
    return Tokenizer(Normalizer(TextConfig(), False), None, model, Numbering.new(symbols, model.entries))


def characters(symbols: Sequence[str] = ()) -> Tokenizer:
    return around(Characters(LETTERS, byte_fallback=True), symbols)


def words() -> Tokenizer:
    return around(Words([]))


@cache
def learnt(kind: Kind, vocab_size: int) -> Tokenizer:
    byte_fallback = vocab_size > 256
    recipe = Recipe(kind, True, "en", "de", TextConfig(words="raw"), SYMBOLS, byte_fallback=byte_fallback)
    config = TokenizerConfig(kind=kind, vocab_size=vocab_size, byte_fallback=byte_fallback, symbols=SYMBOLS)
    return learn_tokenizers(recipe, config, {"source": SAMPLE, "target": []}).source


WORDS = st.one_of(
    st.text(alphabet=LETTERS.replace(" ", "") + "é中😀", min_size=1, max_size=30), st.sampled_from(SYMBOLS)
)


@pytest.mark.slow
@pytest.mark.parametrize("kind", get_args(Kind))
@pytest.mark.parametrize("entries", [48, 304], ids=["unknowns", "bytes"])
@given(line=st.lists(WORDS, max_size=40), longest=st.integers(8, 60))
def test_parts_fit_and_joined_are_the_text(kind: Kind, entries: int, line: list[str], longest: int) -> None:
    tokenizer = learnt(kind, entries if kind != "bpe" else entries + 60)
    head = ["<2de>"] if line[:1] == ["<2de>"] else []
    remaining = line[1:] if head else line
    text = " ".join(["a", *remaining])
    result = list(parts(" ".join([*head, text]), longest, tokenizer))
    assert max(len(tokenizer.encode(part)) for part in result) <= longest
    assert all(part == " ".join(part.split()) != "" for part in result)
    if head:
        assert all(part.startswith("<2de> ") for part in result)
        result = [part.removeprefix("<2de> ") for part in result]
    position = 0
    for part in result:
        position += text[position : position + 1] == " "
        assert text.startswith(part, position)
        position += len(part)
    assert position == len(text)


@pytest.mark.parametrize(
    ("text", "longest", "expected"),
    [
        ("Abc d. Ef, gh! Ij: kl, ab", 20, ["Abc d. Ef, gh!", "Ij: kl, ab"]),
        ('Abc "d." Ef, gh ij kl ab', 18, ['Abc "d."', "Ef, gh ij kl ab"]),
        ("Abc d 3.5 ef, gh ij kl ab", 18, ["Abc d 3.5 ef,", "gh ij kl ab"]),
        ("abc de ef gh 3,5 ij kl", 15, ["abc de ef gh", "3,5 ij kl"]),
        ("abc def ghi jkl abc", 10, ["abc def", "ghi jkl", "abc"]),
        ("abcdefghijklabcdefgh", 10, ["abcdefghij", "klabcdefgh"]),
        ("日本日本日本。日本、日本日本日本", 12, ["日本日本日本。", "日本、日本日本日本"]),
        ("日本日本日本、日本日本日本日本", 12, ["日本日本日本、", "日本日本日本日本"]),
        ("A b. C d. E f. G h. I j. K l.", 20, ["A b. C d. E f. G h.", "I j. K l."]),
        ("a bcdefghijkl ab", 12, ["a", "bcdefghijkl", "ab"]),
        ("a bcdefghijkl", 12, ["a", "bcdefghijkl"]),
        ("<2de> abc. def. ghi. jkl.", 12, ["<2de> abc. def.", "<2de> ghi. jkl."]),
        ("D. abc def, ghi jkl abc def ghi jkl", 24, ["D. abc def,", "ghi jkl abc def ghi", "jkl"]),
        ("abc 😀 def", 3, ["abc", "def"]),
        *((text, 8, [text]) for text in ("abc def.", "<2de>", "<2de> abc.", "a. b. c.")),
    ],
    ids=[
        *("sentence", "closing quote", "clause, not a number", "no clause in a number", "word", "anywhere"),
        *("sentence without space", "clause without space", "last of equal positions", "two words that fit"),
        *("last word that fits", "leading symbol in every part", "no tiny part for an early end"),
        *("character that does not fit", "fits", "symbol", "fits with symbol", "short"),
    ],
)
def test_a_line_is_split_at_the_best_position(text: str, longest: int, expected: list[str]) -> None:
    assert list(parts(text, longest, characters(SYMBOLS))) == expected


def test_a_sentence_that_just_fits_is_not_split() -> None:
    assert list(parts("abc. efgh. hijklmnopqrs. xyz", 3, words())) == ["abc. efgh. hijklmnopqrs.", "xyz"]


@pytest.mark.parametrize(
    "text",
    ["<2de> " * 19 + "<2de>", "<2de> " * 6 + "😀 😀", "abc <a-rather-long-symbol> def " * 19 + "ab"],
    ids=["symbols only", "many leading symbols", "inside"],
)
def test_symbols_are_not_split_and_too_many_are_not_repeated(text: str) -> None:
    assert " ".join(parts(text, 8, characters(SYMBOLS))) == text


def test_parts_fit_even_if_shorter_text_has_more_tokens() -> None:
    tokenizer = around(_CostlyStops("ab."))
    text = "ab. " * 50 + "a"
    result = list(parts(text, 20, tokenizer))
    assert " ".join(result) == text
    assert max(len(tokenizer.encode(part)) for part in result) <= 20


class _CostlyStops(Characters):
    """A model with ten more tokens for a full stop at the end of a text."""

    def encode(self, text: str) -> list[int]:
        return super().encode(text) + [2] * (10 * text.endswith("."))


def test_parts_are_well_filled_when_word_lengths_change() -> None:
    line = ["ab"] * 1000 + ["abcdefghijkl"] * 1000 + ["b"] * 1000
    result = list(parts(" ".join(line), 50, words()))
    assert len(result) <= 3000 / 50 / 0.8


def test_a_symbol_fits_even_if_its_first_character_does_not() -> None:
    assert list(parts("ab 😀abcdef ab", 2, characters(["😀abcdef"]))) == ["ab", "😀abcdef", "ab"]


@pytest.mark.parametrize(
    ("lang", "expected"),
    [
        ("de", "ab cd ef  gh"),
        ("zh", "abcdef  gh"),
        ("zh-TW", "abcdef  gh"),
        ("jpn", "abcdef  gh"),
        ("jav", "ab cd ef  gh"),
    ],
)
def test_sentences_are_joined_with_the_separator_of_the_language(lang: str, expected: str) -> None:
    """A single space or none depends on the language. Other whitespace is kept."""
    assert joined(["ab", "cd", "ef", "gh"], ["", " ", "  ", ""], lang) == expected


@pytest.mark.parametrize("lang", ["de", "zh"])
def test_leading_spaces_and_line_breaks_stay(lang: str) -> None:
    assert joined(["", "ab", "cd", "", "ef"], [" ", "\n\n ", " ", "\t", " "], lang) == " ab\n\n cd \tef "


LEARNED = ModelConfig(positions="learned", longest=300)


@pytest.mark.parametrize(
    ("model", "trained", "expected"),
    [
        (ModelConfig(), 100, 99),
        (ModelConfig(), None, BatchConfig().longest - 1),
        (LEARNED, 100, 99),
        (LEARNED, 400, 299),
    ],
)
def test_the_maximum_length_is_that_of_training_and_of_the_positions(
    model: ModelConfig, trained: int | None, expected: int
) -> None:
    assert longest_source(model, trained) == expected


@pytest.mark.parametrize(
    "text",
    [
        "ab cd. " * 20_000 + "e",
        "ab " * 45_000 + "c",
        "a" * 140_000 + " b",
        ".,;" * 45_000,
        "a." + "'" * 140_000,
    ],
    ids=["sentences", "words", "one word", "punctuation", "quotes"],
)
def test_splitting_takes_linear_time(text: str) -> None:
    model = _Counting()
    tokenizer = around(model)
    assert sum(1 for _ in parts(text, 50, tokenizer)) > 2000
    assert model.seen < 5 * len(text)


def test_splitting_takes_linear_time_after_a_long_token() -> None:
    model = _Counting(merging="d")
    tokenizer = around(model)
    text = ("d" * 1000 + "abc" * 100) * 50
    assert "".join(parts(text, 50, tokenizer)) == text
    assert model.seen < 30 * len(text)


class _Counting(Characters):
    """Counts the encoded characters. A run of `merging` is one token."""

    def __init__(self, merging: str = "") -> None:
        super().__init__("abcde")
        self.seen = 0
        self._run = re.compile(f"{merging}+") if merging else None

    def encode(self, text: str) -> list[int]:
        self.seen += len(text)
        return super().encode(self._run.sub("d", text) if self._run else text)


def test_leading_symbols_are_repeated_before_each_sentence() -> None:
    text = " <2de> One.  Two.\nThree."
    result = split(text, ("<2de>",), "en")
    assert result == [("", " "), ("<2de> One.", "  "), ("<2de> Two.", "\n"), ("<2de> Three.", "")]
