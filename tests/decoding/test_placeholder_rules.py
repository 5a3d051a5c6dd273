"""Decoding with each placeholder exactly once, against brute force."""

import itertools
from collections.abc import Sequence

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from nmt_cli.decoding.config import SearchConfig
from nmt_cli.decoding.search.hypotheses import Hypothesis, PlaceholdersWanted, Sentence
from tests.decoding.search.test_search import log_probs_of_all, model_of
from tests.searching import translate_sentences

ENTRIES = 8
SYMBOLS = (2, 3, 4)


def search(seed: int, expected: Sequence[Sequence[int]], config: SearchConfig) -> list[list[Hypothesis]]:
    """Return translations with these symbols."""
    sentences = [
        Sentence(i, [6, *each, 7], placeholders=PlaceholdersWanted(SYMBOLS, tuple(each)))
        for i, each in enumerate(expected)
    ]
    actual = translate_sentences([model_of(seed, ENTRIES)], sentences, config)
    return [actual[sentence.key] or [] for sentence in sentences]


def symbols_in(tokens: Sequence[int]) -> list[int]:
    return sorted(token for token in tokens if token in SYMBOLS)


@pytest.mark.parametrize(
    "config",
    [
        SearchConfig(beam=1),
        SearchConfig(beam=4, n_best=4),
        SearchConfig(beam=2, cap_ratio=0.0, cap_extra=0),
        SearchConfig(beam=2, min_length=6, no_repeat_ngram=2),
        SearchConfig(sample=True, n_best=3),
    ],
    ids=["greedy", "beam", "no room", "with other rules", "sampling"],
)
def test_each_placeholder_comes_once_and_no_other_one(config: SearchConfig) -> None:
    expected = [[], [2], [3, 4], [4, 2, 3]]
    for seed in range(4):
        for each, hypotheses in zip(expected, search(seed, expected, config), strict=True):
            assert hypotheses
            assert [symbols_in(one.tokens) for one in hypotheses] == [sorted(each)] * len(hypotheses)


def test_a_translation_has_no_more_join_symbols_than_the_source() -> None:
    config = SearchConfig(sample=True, n_best=20)
    for joins in (0, 1):
        expected = PlaceholdersWanted((2, 3), (2,), join=4, joins=joins)
        sentence = Sentence(0, [6, 2, 7], placeholders=expected)
        actual = translate_sentences([model_of(1, ENTRIES)], [sentence], config)[0]
        assert actual
        assert max(one.tokens.count(4) for one in actual) == joins


@given(seed=st.integers(0, 100))
@example(seed=94)  # the likeliest first token is the unknown token, and the next is the end token
@settings(max_examples=3)
def test_the_best_translation_with_the_placeholder_is_returned(seed: int) -> None:
    config = SearchConfig(beam=60, n_best=1, cap_ratio=0.0, cap_extra=3, length_penalty=0.0)
    ((actual,),) = search(seed, [[3]], config)
    every = (ids for n in range(4) for ids in itertools.product(range(2, ENTRIES), repeat=n))
    fitting = [ids for ids in every if symbols_in(ids) == [3]]
    rows = log_probs_of_all(model_of(seed, ENTRIES), [6, 3, 7], fitting)
    totals = {}
    for ids, each in zip(fitting, rows, strict=True):
        # A hypothesis that would end writes the symbol first. The unknown token, 1, is never written.
        likeliest = [int(row.index_fill(0, torch.tensor(1), -torch.inf).argmax()) for row in each]
        hasty = [i for i, token in enumerate(likeliest) if 3 not in ids[:i] and token == 0]
        if all(ids[i] == 3 for i in hasty):
            totals[ids] = sum(float(row[i]) for row, i in zip(each, [*ids, 0], strict=True))
    best = max(totals, key=totals.__getitem__)
    assert tuple(actual.tokens) == best
    assert actual.score == pytest.approx(totals[best], abs=1e-4)
