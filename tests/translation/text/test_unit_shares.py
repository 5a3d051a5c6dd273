"""The alignment of words from the attention of tokens."""

from collections.abc import Sequence

import numpy as np
import pytest

from nmt_cli.decoding.search.hypotheses import Hypothesis, Sentence
from nmt_cli.text.config import TextConfig, TokenizerConfig
from nmt_cli.text.tag_placement import Shares
from nmt_cli.text.tokenizers import Recipe, learn_tokenizers
from nmt_cli.translation.text.unit_shares import composed, links, unit_shares

LINES = ["a cat sat on it", "cats sat"]
TOKENIZERS = learn_tokenizers(
    Recipe("char", True, "en", "de", TextConfig()),
    TokenizerConfig(kind="char", vocab_size=16),
    {"source": LINES, "target": LINES},
)


def shares(sources: Sequence[str], targets: Sequence[str], attention: Sequence[np.ndarray]) -> Shares:
    """The alignment of a line in parts, with the attention of the characters of each part."""
    encode = TOKENIZERS.source.encode
    return unit_shares(
        TOKENIZERS,
        " ".join(sources),
        [Sentence(0, encode(source)) for source in sources],
        " ".join(targets),
        [
            Hypothesis(encode(target), 0.0, [], attention_TS=matrix.astype(np.float32))
            for target, matrix in zip(targets, attention, strict=True)
        ],
    )


def test_the_first_token_of_a_word_aligns_it() -> None:
    attention_TS = np.full((5, 6), 1 / 6)
    attention_TS[0] = [0, 0, 0.5, 0.5, 0, 0]  # c of "cat" attends to "cat"
    attention_TS[4] = [0.5, 0, 0, 0, 0, 0.5]  # "a" attends to "a" and to the end token
    assert shares(["a cat"], ["cat a"], [attention_TS]) == [{1: 1.0}, {0: 0.5}]


def test_a_word_that_attracts_attention_everywhere_counts_less() -> None:
    attention_TS = np.array([[0.6, 0, 0.4, 0], [1.0, 0, 0, 0], [1.0, 0, 0, 0]])
    first, second = shares(["a c"], ["a c"], [attention_TS])
    assert first[0] < 0.5 < first[1]
    assert second == {0: 1.0}


def test_parts_of_a_line_align_with_their_own_source() -> None:
    actual = shares(["sat", "it"], ["it", "sat"], [np.full((2, 4), 0.25), np.full((3, 3), 1 / 3)])
    assert actual == [{0: 0.75}, {1: pytest.approx(2 / 3)}]


@pytest.mark.parametrize(("source", "target"), [("", "a"), ("a", ""), ("", "")])
def test_an_empty_side_has_no_shares(source: str, target: str) -> None:
    rows, columns = len(target), len(source) + 1
    assert shares([source], [target], [np.ones((rows, columns))]) == [{}] * len(target)


def test_without_attention_all_shares_are_zero() -> None:
    encode = TOKENIZERS.source.encode
    hypothesis = Hypothesis(encode("cat"), 0.0, [])
    actual = unit_shares(TOKENIZERS, "a cat", [Sentence(0, encode("a cat"))], "cat", [hypothesis])
    assert actual == [{}]


@pytest.mark.parametrize(
    ("shares", "expected"),
    [
        ([{0: 0.6, 1: 0.4}, {0: 0.1, 1: 0.9}], [(0, 0), (1, 0), (1, 1)]),
        ([{0: 0.2, 1: 0.1}], [(0, 0)]),
        ([{}, {}], []),
    ],
    ids=["large shares", "the best", "no attention"],
)
def test_words_with_large_shares_or_the_best_are_linked(
    shares: Shares, expected: list[tuple[int, int]]
) -> None:
    assert links(shares) == expected


def test_alignments_of_two_steps_are_composed() -> None:
    first = [{1: 1.0}, {0: 0.5, 1: 0.25}]
    assert composed(first, [{1: 0.5}, {0: 0.5, 1: 0.5}, {}]) == [
        {0: 0.25, 1: 0.125},
        {0: 0.25, 1: 0.625},
        {},
    ]
