"""The demo corpus is reproducible, and no sentence is in two sets."""

import pytest

from nmt_cli.demo import corpus as grammar
from nmt_cli.demo.lexicon import Pair


def test_the_grammar_fills_the_demo_with_distinct_sentences_of_one_translation() -> None:
    pairs = [pair for split, size in grammar.SIZES.items() for pair in grammar.corpus(split, size, seed=1)]
    assert len({pair.en for pair in pairs}) == len(pairs) == sum(grammar.SIZES.values())
    pairs += grammar.corpus("train", 5000, seed=2)
    assert len({pair.en for pair in pairs}) == len(set(pairs)) > sum(grammar.SIZES.values())


def test_a_sentence_belongs_to_one_set_whatever_the_seed() -> None:
    test = grammar.corpus("test", 100, seed=1)
    train = grammar.corpus("train", 3000, seed=2)
    assert {grammar.split_of(pair.en) for pair in test} == {"test"}
    assert {grammar.split_of(pair.en) for pair in train} == {"train"}


def test_a_larger_corpus_begins_with_the_smaller_one() -> None:
    assert grammar.corpus("train", 300, seed=1)[:100] == grammar.corpus("train", 100, seed=1)


def test_a_size_beyond_the_grammar_ends_with_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grammar, "sentence", lambda draw: Pair(f"number {draw.integer(1, 9)}", "Zahl"))
    monkeypatch.setattr(grammar, "PATIENCE", 1000)
    with pytest.raises(
        ValueError, match=r"^--train must be at most \d, the size of the grammar \(got 50\)\.$"
    ):
        grammar.corpus("train", 50, seed=1)
