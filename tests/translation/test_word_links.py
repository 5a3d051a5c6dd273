"""Alignments of words."""

import pytest

from nmt_cli.decoding.search.hypotheses import Hypothesis, Sentence
from nmt_cli.text.config import Kind, TextConfig, TokenizerConfig
from nmt_cli.text.placeholders import family, restored
from nmt_cli.text.tokenizers import Recipe, Tokenizers, learn_tokenizers
from nmt_cli.translation.lines import Candidate, Line
from nmt_cli.translation.pairs import word_links

LINES = ["a cat sat on it", "cats sat {}", "Hello , world ! Don 't"]


def learned(kind: Kind, placeholders: int = 0) -> Tokenizers:
    recipe = Recipe(kind, True, "en", "de", TextConfig(), symbols=family(placeholders, False))
    return learn_tokenizers(recipe, TokenizerConfig(kind=kind), {"source": LINES, "target": LINES})


CHARACTERS, WORDS, MASKS = learned("char"), learned("word"), learned("char", placeholders=1)


def links(
    sources: list[str],
    targets: list[str],
    aligned: list[int],
    tokenizers: Tokenizers = CHARACTERS,
    line: str = "",
    values: dict[str, str] | None = None,
) -> str:
    """Return the links of a line with the parts `sources` and a translation with the parts `targets`."""

    def encoded(text: str) -> list[int]:
        return tokenizers.source.encode(tokenizers.source.prepare(text))

    symbols = values or {}
    parts = [Hypothesis(encoded(text), 0.0, []) for text in targets]
    sentences = [
        Sentence(number, encoded(one), raw=restored(one, symbols), values=symbols)
        for number, one in enumerate(sources)
    ]
    raw, text = line or restored(" ".join(sources), symbols), restored(" ".join(targets), symbols)
    candidate = Candidate(text=text, score=0.0, parts=parts, tokens=[], token_scores=[])
    read = Line(1, raw, sentences, 0, too_long=False, prefix_unknown=False)
    return word_links(tokenizers, read, candidate, aligned)


def test_words_are_linked_once_by_their_characters() -> None:
    # The space in the target belongs to the word before it.
    assert links(["a cat"], ["cat a"], [2, 3, 4, 4, 0]) == "0-1 1-0"


def test_word_numbers_continue_in_the_second_part() -> None:
    # Characters 0 to 2 are "sat", 3 to 6 "on it".
    assert links(["sat", "on it"], ["it", "sat"], [0, 1, 7, 7, 7]) == "0-0 2-1"


def test_an_empty_line_has_no_links() -> None:
    assert links([""], [""], []) == ""


@pytest.mark.parametrize(
    ("text", "tokens", "expected"),
    [
        ("Hello, world!", ["Hello", ",", "world", "!"], "0-0 1-1"),
        ("Don't sat", ["Don", "'t", "sat"], "0-0 1-1"),
        (" Hello ,  world !", ["Hello", ",", "world", "!"], "0-0 1-1 2-2 3-3"),
    ],
)
def test_words_are_those_of_the_line_and_not_of_the_tokenised_text(
    text: str, tokens: list[str], expected: str
) -> None:
    ids = WORDS.source.encode(WORDS.source.prepare(text))
    assert [WORDS.source.decode([i]) for i in ids] == tokens
    assert links([text], [text], [*range(len(ids))], WORDS) == expected


def test_the_rest_of_a_line_that_is_cut_has_no_links() -> None:
    assert links(["a cat"], ["a cat"], [0, 1, 2, 3, 4], line="a cat sat on it") == "0-0 1-1"


def test_a_placeholder_is_linked_as_the_text_that_it_represents() -> None:
    symbol = MASKS.recipe.placeholders[0]
    text = f"a {symbol} it"
    assert links([text], [text], [0, 1, 2, 3], MASKS, values={symbol: "{name}"}) == "0-0 1-1 2-2"
