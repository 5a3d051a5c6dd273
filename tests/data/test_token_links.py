"""Tokens belong to the word in which they begin, whatever the subword model makes of it."""

import re
from collections.abc import Sequence
from itertools import chain, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmt_cli.data.dataset import TOKENIZERS
from nmt_cli.data.encode import EncodedSide
from nmt_cli.data.token_links import PairLinks, TokenLinks, WordTokens, as_links, pair_links
from nmt_cli.text.tokenizer import Tokenizer
from nmt_cli.text.tokenizers import Tokenizers, load_tokenizers
from tests.data.corpora import Make

LINES = ["a dog", "a 🐕🐕 dog", "ä ÿ", "🐕 .", "a Ω✓ b", "⟦1⟧ a ⟦2⟧"]


@pytest.fixture(scope="module", params=["word", "char", "bpe", "sentencepiece"])
def tokenizers(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, make: Make, toy: str
) -> Tokenizers:
    out = tmp_path_factory.mktemp("tokenizers") / "out"
    own = {
        "bpe": ["tokenizer.vocab_size=60"],
        "sentencepiece": ["tokenizer.vocab_size=330", "tokenizer.byte_fallback=true"],
    }
    kind = request.param
    make(out, [toy], f"tokenizer.kind={kind}", "tokenizer.placeholders=2", *own.get(kind, []))
    return load_tokenizers(out / TOKENIZERS)


def encoded(tokenizer: Tokenizer, lines: Sequence[str]) -> EncodedSide:
    """Return the tokens of lines, without end tokens."""
    ids = [tokenizer.encode(tokenizer.prepare(line)) for line in lines]
    return EncodedSide(np.array([*chain(*ids)], np.uint16), np.array([*map(len, ids)], np.int64))


@pytest.mark.parametrize("line", LINES)
def test_the_tokens_of_a_word_are_those_that_decode_to_it(tokenizers: Tokenizers, line: str) -> None:
    tokenizer = tokenizers.source
    tokens = encoded(tokenizer, [line])
    word_of = WordTokens(tokenizer).of([line.split()], tokens)
    assert [*word_of] == sorted(word_of)
    unknown = tokenizer.decode([tokenizer.vocabulary.unknown]).strip()
    for number, word in enumerate(line.split()):
        decoded = "".join(tokenizer.decode(tokens.tokens[word_of == number].tolist()).split())
        assert re.fullmatch(re.escape(decoded).replace(re.escape(unknown), ".+"), word)


def test_numbers_are_links_in_order_without_repetition() -> None:
    links = pair_links([[(3, 1), (1, 0), (2, 1), (3, 1), (70_000, 1)], [], [(0, 2)]])
    assert [*links.counts] == [3, 0, 1]
    assert as_links(links.numbers) == [(1, 0), (2, 1), (3, 1), (0, 2)]


def test_links_of_words_become_links_of_all_their_tokens(tokenizers: Tokenizers) -> None:
    pair = ("a dog", "ein Hund")
    sides = [tokenizers.source, tokenizers.target]
    tokens = [encoded(side, [text]) for side, text in zip(sides, pair, strict=True)]
    first = [len(side.encode(text.split()[0])) for side, text in zip(sides, pair, strict=True)]
    lengths = [len(side.tokens) for side in tokens]
    expected = {
        (s, t) for s, t in product(range(lengths[0]), range(lengths[1])) if (s < first[0]) == (t < first[1])
    }
    words = [[text.split()] for text in pair]
    found = TokenLinks(tokenizers).of(words, tokens, pair_links([[(0, 0), (1, 1)]]))
    assert {*as_links(found.numbers)} == expected


@given(st.data())
def test_many_pairs_have_the_links_of_each_pair_alone(tokenizers: Tokenizers, data: st.DataObject) -> None:
    line = st.sampled_from([*LINES, ""])
    pairs = data.draw(st.lists(st.tuples(line, line), max_size=6))
    links: list[list[tuple[int, int]]] = []
    for source, target in pairs:
        possible = [*product(range(len(source.split())), range(len(target.split())))]
        links.append(data.draw(st.lists(st.sampled_from(possible), max_size=4)) if possible else [])
    between_tokens = TokenLinks(tokenizers)

    def linked(first: int, end: int) -> PairLinks:
        sides = [[pair[side] for pair in pairs[first:end]] for side in (0, 1)]
        tokens = [encoded(tokenizers.source, sides[0]), encoded(tokenizers.target, sides[1])]
        words = [[text.split() for text in lines] for lines in sides]
        return between_tokens.of(words, tokens, pair_links(links[first:end]))

    together, alone = linked(0, len(pairs)), [linked(number, number + 1) for number in range(len(pairs))]
    assert [*together.counts] == [count for one in alone for count in one.counts]
    assert [*together.numbers] == [number for one in alone for number in one.numbers]
