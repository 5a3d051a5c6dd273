"""Alignments of words."""

from nmt_cli.text.config import TextConfig, TokenizerConfig
from nmt_cli.text.tokenizers import Recipe, learn_tokenizers
from nmt_cli.translation.pairs import word_links

LINES = ["a cat sat on it", "cats sat"]
TOKENIZERS = learn_tokenizers(
    Recipe("char", True, "en", "de", TextConfig()),
    TokenizerConfig(kind="char", vocab_size=16),
    {"source": LINES, "target": LINES},
)


def links(sources: list[str], targets: list[str], aligned: list[int]) -> str:
    encode = TOKENIZERS.source.encode
    return word_links(TOKENIZERS, [*map(encode, sources)], [*map(encode, targets)], aligned)


def test_words_are_linked_once_by_their_characters() -> None:
    # The space in the target belongs to the word before it.
    assert links(["a cat"], ["cat a"], [2, 3, 4, 4, 0]) == "0-1 1-0"


def test_word_numbers_continue_in_the_second_part() -> None:
    # Characters 0 to 2 are "sat", 3 to 6 "on it".
    assert links(["sat", "on it"], ["it", "sat"], [0, 1, 7, 7, 7]) == "0-0 2-1"


def test_an_empty_line_has_no_links() -> None:
    assert links([""], [""], []) == ""
