"""The corpus of the demo: the same for a seed, and no sentence of one set in another."""

import pytest

from nmt_cli.demo import corpus as grammar
from nmt_cli.demo.lexicon import Pair


def test_another_seed_gives_another_corpus() -> None:
    assert grammar.corpus("train", 10, seed=1) != grammar.corpus("train", 10, seed=2)


def test_a_sentence_belongs_to_one_set_whatever_the_seed() -> None:
    test = grammar.corpus("test", 100, seed=1)
    train = grammar.corpus("train", 3000, seed=2)
    assert {grammar.split_of(pair.en) for pair in test} == {"test"}
    assert {grammar.split_of(pair.en) for pair in train} == {"train"}


def test_a_larger_corpus_begins_with_the_smaller_one() -> None:
    assert grammar.corpus("train", 300, seed=1)[:100] == grammar.corpus("train", 100, seed=1)


def test_asking_for_more_than_the_grammar_has_ends_with_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grammar, "sentence", lambda rng: Pair(f"{rng.random():.1f}", "eins"))
    monkeypatch.setattr(grammar, "PATIENCE", 1000)
    with pytest.raises(ValueError, match=r"--train is 50, but the grammar gave only \d+ different sentences"):
        grammar.corpus("train", 50, seed=1)
