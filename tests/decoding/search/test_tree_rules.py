"""Decoding of well-formed trees, against brute force and the reader of trees."""

import itertools
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nmt_cli.corpus.trees import repair_linearised
from nmt_cli.decoding.config import SearchConfig
from nmt_cli.decoding.engine import ListQueue, translated
from nmt_cli.decoding.ensemble import Ensemble
from nmt_cli.decoding.search.hypotheses import Hypothesis, Sentence
from nmt_cli.decoding.search.tree_rules import TreeSymbols, TreeWanted
from tests.decoding.search.test_search import log_probs_of_all, model_of

NAMES = ("</s>", "<unk>", "(A", ")A", "(B", ")B", "X", ".")
SYMBOLS = TreeSymbols({2: 3, 4: 5}, frozenset({6, 7}))


def search(seed: int, words: Sequence[int], config: SearchConfig) -> list[list[Hypothesis]]:
    """Return translations that are trees over sentences of `words` words."""
    model = model_of(seed, len(NAMES))
    sentences = [Sentence(i, [6] * count, tree=TreeWanted(SYMBOLS, count)) for i, count in enumerate(words)]
    every = translated(Ensemble.of([model], config), config, ListQueue(sentences))
    found = {sentence.key: hypotheses or [] for sentence, hypotheses in every}
    return [found[sentence.key] for sentence in sentences]


def well_formed(ids: Sequence[int], words: int) -> bool:
    """Return whether the reader of linearised trees accepts the symbols."""
    return not repair_linearised(" ".join(NAMES[i] for i in ids), words)[1]


@given(seed=st.integers(0, 100))
@settings(max_examples=3)
def test_the_best_of_all_well_formed_trees_is_found(seed: int) -> None:
    config = SearchConfig(beam=60, n_best=5, cap_ratio=0.0, cap_extra=5, length_penalty=0.0)
    (found,) = search(seed, [2], config)
    every = (ids for n in range(6) for ids in itertools.product(range(2, 8), repeat=n))
    trees = [ids for ids in every if well_formed(ids, 2)]
    rows = log_probs_of_all(model_of(seed, len(NAMES)), [6, 6], trees)
    totals = [
        sum(float(row[i]) for row, i in zip(each, [*ids, 0], strict=True))
        for ids, each in zip(trees, rows, strict=True)
    ]
    best = sorted(zip(totals, trees, strict=True), reverse=True)[:5]
    assert [tuple(each.tokens) for each in found] == [ids for _, ids in best]
    assert [each.score for each in found] == pytest.approx([total for total, _ in best], abs=1e-4)


@pytest.mark.parametrize(
    "config",
    [
        SearchConfig(beam=1),
        SearchConfig(beam=3, n_best=3, rows=6),
        SearchConfig(beam=2, cap_ratio=0.0, cap_extra=0),
        SearchConfig(sample=True, n_best=3),
        SearchConfig(beam=2, min_length=12),
    ],
    ids=["greedy", "beam", "no room for brackets", "sampling", "too short for the settings"],
)
def test_every_tree_is_balanced_and_has_one_tag_a_word(config: SearchConfig) -> None:
    words = [3, 1, 5, 2]
    for seed in range(3):
        for count, trees in zip(words, search(seed, words, config), strict=True):
            assert trees
            assert all(well_formed(tree.tokens, count) for tree in trees)
