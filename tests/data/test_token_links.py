"""Tokens belong to the word in which they begin, whatever the subword model makes of it."""

import re
from itertools import product

import numpy as np
import pytest

from nmt_cli.data.dataset import TOKENIZERS
from nmt_cli.data.token_links import TokenLinks, WordTokens, as_links, as_numbers
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


@pytest.mark.parametrize("line", LINES)
def test_the_tokens_of_a_word_are_those_that_decode_to_it(tokenizers: Tokenizers, line: str) -> None:
    tokenizer = tokenizers.source
    ids = tokenizer.encode(tokenizer.prepare(line))
    found = WordTokens(tokenizer).of(line, np.array(ids, np.uint16))
    assert [position for word in found for position in word] == [*range(len(ids))]
    unknown = tokenizer.decode([tokenizer.vocabulary.unknown]).strip()
    for word, positions in zip(line.split(), found, strict=True):
        decoded = "".join(tokenizer.decode([ids[position] for position in positions]).split())
        assert re.fullmatch(re.escape(decoded).replace(re.escape(unknown), ".+"), word)


def test_numbers_are_links_in_order_without_repetition() -> None:
    numbers = as_numbers([(3, 1), (1, 0), (2, 1), (3, 1), (70_000, 1)])
    assert as_links(numbers) == [(1, 0), (2, 1), (3, 1)]


def test_links_of_words_become_links_of_all_their_tokens(tokenizers: Tokenizers) -> None:
    pair = ("a dog", "ein Hund")
    sides = [tokenizers.source, tokenizers.target]
    ids = [np.array(side.encode(text)) for side, text in zip(sides, pair, strict=True)]
    first = [len(side.encode(text.split()[0])) for side, text in zip(sides, pair, strict=True)]
    expected = {
        (s, t) for s, t in product(range(len(ids[0])), range(len(ids[1]))) if (s < first[0]) == (t < first[1])
    }
    assert {*as_links(TokenLinks(tokenizers).of(pair, ids, [(0, 0), (1, 1)]))} == expected
