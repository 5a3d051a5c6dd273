"""The search for well-formed trees, against brute force and the reader of trees."""

import itertools
import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from nmt_cli.decoding.config import SearchConfig
from nmt_cli.decoding.search.hypotheses import Hypothesis, Sentence
from nmt_cli.model.config import ModelConfig
from recipes.parsing.tree_rule import TreeRule
from recipes.parsing.trees import repair_linearised
from tests.decoding.search.test_search import TINY, log_probs_of_all, model_of
from tests.searching import plain, translate_sentences

NAMES = ("</s>", "<unk>", "(A", ")A", "(B", ")B", "X", ".")
RULE = TreeRule(((2, 3), (4, 5)), (6, 7))


def parses(
    seed: int, words: Sequence[int], config: SearchConfig, shape: ModelConfig = TINY
) -> list[list[Hypothesis]]:
    """Return the parses of sentences of `words` words by a model with random weights."""
    sentences = [Sentence(i, [6] * n, rule=RULE, raw=" ".join("w" * n)) for i, n in enumerate(words)]
    found = translate_sentences([model_of(seed, len(NAMES), shape)], sentences, config, plain)
    return [found[sentence.key] or [] for sentence in sentences]


def flaw(ids: Sequence[int], words: int) -> str:
    """Return what the reader of linearised trees finds wrong, or ""."""
    return repair_linearised(" ".join(NAMES[i] for i in ids), words)[1]


@given(seed=st.integers(0, 1000))
@settings(max_examples=3)
def test_the_best_of_all_well_formed_trees_is_found(seed: int) -> None:
    config = SearchConfig(beam=60, n_best=5, cap_ratio=0.0, cap_extra=5, length_penalty=0.0)
    (found,) = parses(seed, [2], config)
    every = (ids for n in range(6) for ids in itertools.product(range(2, 8), repeat=n))
    trees = [ids for ids in every if not flaw(ids, 2)]
    rows = log_probs_of_all(model_of(seed, len(NAMES)), [6, 6], trees)
    totals = [
        sum(float(row[i]) for row, i in zip(each, [*ids, 0], strict=True))
        for ids, each in zip(trees, rows, strict=True)
    ]
    best = sorted(zip(totals, trees, strict=True), reverse=True)[:5]
    assert [tuple(each.tokens) for each in found] == [ids for _, ids in best]
    assert [each.score for each in found] == pytest.approx([total for total, _ in best], abs=1e-4)


SETTINGS: dict[str, dict[str, Any]] = {
    "greedy": {"beam": 1},
    "a beam": {"beam": 3, "n_best": 3, "rows": 6},
    "the paper's search": {"beam": 21, "length_penalty": 0.3},
    "no room for brackets": {"beam": 2, "cap_extra": 0},
    "sampling": {"sample": True, "n_best": 3},
    "too short for the settings": {"beam": 2, "min_length": 12},
}


@pytest.mark.parametrize("name", SETTINGS)
@given(seed=st.integers(0, 10_000), words=st.lists(st.integers(1, 9), min_size=1, max_size=4))
@settings(max_examples=4, phases=[Phase.explicit, Phase.generate])
def test_each_parse_is_a_well_formed_tree_with_a_tag_for_each_word(
    name: str, seed: int, words: list[int]
) -> None:
    shape = replace(TINY, norm=random.Random(seed).choice(["pre", "post"]))
    config = SearchConfig(**{"cap_extra": 8, **SETTINGS[name]})
    for count, trees in zip(words, parses(seed, words, config, shape), strict=True):
        assert trees
        assert [flaw(tree.tokens, count) for tree in trees] == [""] * len(trees)
