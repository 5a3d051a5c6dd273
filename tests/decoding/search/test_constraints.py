"""Rules on repetition and banned words, against brute force."""

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from nmt_cli.decoding.config import SearchConfig
from nmt_cli.decoding.search.hypotheses import Hypothesis, Sentence
from nmt_cli.errors import UserError
from nmt_cli.model.transformer import Transformer
from nmt_cli.text.vocabulary import Vocabulary
from tests.decoding.search.test_search import END, log_probs_of_all, model_of
from tests.model.test_variants import SMALL
from tests.searching import SEARCHES, Prepare, translate_ids, translate_sentences

SOURCE = [2, 4, 3]
CAP = 3
WIDE = SearchConfig(beam=4**CAP, unknown=True, cap_ratio=0.0, cap_extra=CAP, n_best=3)
Target = tuple[int, ...]
Score = Callable[[Target, torch.Tensor], float]
"""Of a translation with these log-probabilities, [tokens and end, V]; -inf where it may not be."""


def best_of_all(model: Transformer, score: Score) -> list[tuple[float, Target]]:
    """Return all possible translations, best first."""
    targets = [each for n in range(CAP + 1) for each in itertools.product(range(1, 5), repeat=n)]
    rows = log_probs_of_all(model, SOURCE, targets)
    scored = ((score(target, each), target) for target, each in zip(targets, rows, strict=True))
    return sorted((one for one in scored if one[0] > -math.inf), reverse=True)


def search(
    model: Transformer, config: SearchConfig, banned: Sequence[Sequence[int]] = ()
) -> list[Hypothesis]:
    """Return the hypotheses for `SOURCE`."""
    return translate_sentences([model], [Sentence(0, SOURCE, banned=banned)], config)[0] or []


def assert_found(actual: Sequence[Hypothesis], expected: Sequence[tuple[float, Target]]) -> None:
    best = expected[: len(actual)]
    assert [tuple(each.tokens) for each in actual] == [target for _, target in best]
    assert [each.score for each in actual] == pytest.approx([score for score, _ in best], abs=1e-4)


def normal(target: Target, rows: torch.Tensor) -> float:
    total = sum(float(row[token]) for row, token in zip(rows, [*target, END], strict=True))
    return float(total / ((5 + len(target) + 1) / 6) ** 0.6)


@pytest.mark.parametrize("size", [1, 2, 3])
@given(seed=st.integers(0, 200))
@settings(max_examples=8)
def test_the_best_translation_without_repeated_n_grams_is_returned(size: int, seed: int) -> None:
    def score(target: Target, rows: torch.Tensor) -> float:
        grams = [target[i : i + size] for i in range(len(target) - size + 1)]
        return normal(target, rows) if len(set(grams)) == len(grams) else -math.inf

    model = model_of(seed)
    assert_found(search(model, replace(WIDE, no_repeat_ngram=size)), best_of_all(model, score))


@given(
    seed=st.integers(0, 200), banned=st.lists(st.lists(st.integers(1, 4), min_size=1, max_size=3), max_size=4)
)
@settings(max_examples=12)
def test_the_best_translation_without_banned_sequences_is_returned(
    seed: int, banned: list[list[int]]
) -> None:
    def score(target: Target, rows: torch.Tensor) -> float:
        held = {target[i:j] for i in range(len(target)) for j in range(i + 1, len(target) + 1)}
        return -math.inf if held & set(map(tuple, banned)) else normal(target, rows)

    model = model_of(seed)
    assert_found(search(model, replace(WIDE, ban=("x",)), banned), best_of_all(model, score))


def test_a_prefix_may_contain_banned_and_repeated_tokens() -> None:
    config = SearchConfig(no_repeat_ngram=1, ban=("x",), unknown=True)
    sentence = Sentence(0, [5, 3], prefix=[7, 7, 2], banned=[[7]])
    best = (translate_sentences([model_of(4, 12)], [sentence], config)[0] or [])[0]
    assert list(best.tokens[:3]) == [7, 7, 2]
    assert len(set(best.tokens[2:])) == len(best.tokens[2:])


@pytest.mark.parametrize("length", [0, 1, 3])
def test_a_language_code_does_not_count_for_the_minimum_length(length: int) -> None:
    config = SearchConfig(beam=4, n_best=4, min_length=length, length_penalty=0.0, unknown=True)
    sentences = [Sentence(key, [5, 3], prefix=[7], certain=1) for key in range(3)]
    lengths = [
        len(one.tokens) - 1
        for seed, sentence in enumerate(sentences)
        for one in translate_sentences([model_of(seed, 12)], [sentence], config)[sentence.key] or []
    ]
    assert min(lengths) == length


@pytest.mark.parametrize("prepare", SEARCHES.values(), ids=SEARCHES)
def test_a_minimum_length_of_one_means_text_and_not_only_spaces(prepare: Prepare) -> None:
    spaces = (2, 3, 5, 7, 11)
    entries = tuple("\u2581" if i in spaces else f"\u2581{i}" for i in range(12))
    vocabulary = Vocabulary(entries, end=0, start=0, unknown=1)
    model = Transformer(SMALL, vocabulary, vocabulary, joint=True).eval()
    with torch.no_grad():
        model.output_matrix[[0, *spaces]] *= 3  # likelier than text

    def last_tokens(min_length: int) -> list[int | None]:
        config = SearchConfig(beam=4, n_best=4, min_length=min_length, length_penalty=0.0)
        found = translate_ids([model], [[key, 3] for key in range(2, 12)], config, prepare)
        # The maximum has precedence.
        return [next(reversed(one.tokens), None) for own in found for one in own if len(one.tokens) < 52]

    assert {None, *spaces}.intersection(last_tokens(0)) > {None}
    assert (texts := last_tokens(1)) and not {None, *spaces}.intersection(texts)


def test_a_translation_without_allowed_tokens_ends() -> None:
    config = SearchConfig(no_repeat_ngram=1, min_length=9, unknown=True)
    (actual,) = translate_ids([model_of(4)], [SOURCE], config)
    assert {*actual[0].tokens} == {1, 2, 3, 4}


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"sample": True, "stop_early": True}, "stop_early has no effect on sampling"),
        ({"ban": ("",)}, "ban holds an empty text"),
    ],
    ids=str,
)
def test_settings_without_effect_are_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        SearchConfig(**values)
