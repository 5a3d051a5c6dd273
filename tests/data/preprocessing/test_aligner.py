"""The aligner against a plain computation of the same model, and what it promises about links."""

from collections import Counter
from collections.abc import Sequence
from itertools import product
from random import Random

import numpy as np
import pytest
import torch

from nmt_cli.data.preprocessing import aligner as module
from nmt_cli.data.preprocessing.aligner import BASE, PLAIN, SUPPORTED, UNALIGNED, Aligner, WordPair
from nmt_cli.runtime.kernels.loading import compiled_kernels

Cell = tuple[int, int]

CORPUS = [
    (["the", "house"], ["das", "Haus"]),
    (["the", "book"], ["das", "Buch"]),
    (["a", "book"], ["ein", "Buch"]),
    (["the", "house", "sees", "the", "book"], ["das", "Haus", "sieht", "das", "Buch"]),
    (["a", "small", "house"], ["ein", "kleines", "Haus", "halt"]),
]


class Plain:
    """The same model by loops over dictionaries."""

    def __init__(self, corpus: Sequence[WordPair]) -> None:
        self.frequent = [Counter(word for pair in corpus for word in pair[side]) for side in (0, 1)]
        self.table = {(one, other): 1.0 for pair in corpus for one in pair[0] for other in pair[1]}
        for iteration in range(PLAIN + SUPPORTED):
            new = dict.fromkeys(self.table, 0.0)
            for pair in corpus:
                for (s, t), value in self.agreed(pair, iteration >= PLAIN).items():
                    new[pair[0][s], pair[1][t]] += value
            self.table = new

    def agreed(self, pair: WordPair, supported: bool) -> dict[Cell, float]:
        """Return the product of both probabilities of each link."""
        both = list(product(range(len(pair[0])), range(len(pair[1]))))
        agreed = self._product(pair, dict.fromkeys(both, 1.0))
        if supported:
            near = {(s, t): agreed.get((s - 1, t - 1), 0) + agreed.get((s + 1, t + 1), 0) for s, t in both}
            agreed = self._product(pair, {cell: BASE + support for cell, support in near.items()})
        return agreed

    def _product(self, pair: WordPair, weights: dict[Cell, float]) -> dict[Cell, float]:
        return {
            cell: self._posterior(pair, weights, cell, 1) * self._posterior(pair, weights, cell, 0)
            for cell in weights
        }

    def _posterior(self, pair: WordPair, weights: dict[Cell, float], cell: Cell, side: int) -> float:
        """Return the probability of a link, if the words of `side` choose their partners."""
        rivals = [other for other in weights if other[side] == cell[side]]
        scores = {}
        for s, t in rivals:
            words = (pair[0][s], pair[1][t])
            total = sum(value for key, value in self.table.items() if key[1 - side] == words[1 - side])
            share = weights[s, t] / sum(weights[other] for other in rivals)
            scores[s, t] = (1 - UNALIGNED) * share * self.table[words] / total
        frequent = self.frequent[side]
        alone = UNALIGNED * frequent[pair[side][cell[side]]] / frequent.total()
        return scores[cell] / (sum(scores.values()) + alone)


@pytest.mark.parametrize("threshold", [0.01, 0.05, 0.25, 0.6])
def test_links_are_those_of_expectation_maximisation_by_loops(
    monkeypatch: pytest.MonkeyPatch, threshold: float
) -> None:
    monkeypatch.setattr(module, "DISTANCE", 0.0)  # without distances, links have the weights of learning
    monkeypatch.setattr(module, "LINKED", threshold)
    aligner = Aligner(CORPUS)
    plain = Plain(CORPUS)
    for pair in CORPUS:
        expected = plain.agreed(pair, True).items()
        assert [*aligner.links([pair])] == [[cell for cell, value in sorted(expected) if value >= threshold]]


def test_tables_are_probabilities() -> None:
    aligner = Aligner(CORPUS)
    owners = np.divmod(aligner._keys_K, 1 + len(aligner._numbers[1]))
    for owner, table in zip(owners, aligner._tables, strict=True):
        np.testing.assert_allclose(np.bincount(owner, table)[1:], 1, rtol=1e-9)


def test_words_find_their_partners_in_any_order_and_case() -> None:
    draws = Random(1)
    vocabulary = [f"w{number}" for number in range(30)]
    corpus = []
    for _ in range(300):
        source = draws.sample(vocabulary, draws.randint(2, 8))
        target = [word.upper() for word in draws.sample(source, len(source))]
        corpus.append((source, target))
    aligner = Aligner(corpus)
    for source, target in corpus:
        expected = [(s, target.index(word.upper())) for s, word in enumerate(source)]
        assert [*aligner.links([[[word.title() for word in source], target]])] == [expected]


def test_repeated_words_are_linked_in_order() -> None:
    pair = (["a", "dog", "sees", "a", "cat"], ["ein", "Hund", "sieht", "ein", "Tier"])
    aligner = Aligner([*CORPUS, pair])
    (links,) = aligner.links([pair])
    assert {(0, 0), (3, 3)} <= {*links}
    assert not {(0, 3), (3, 0)} & {*links}


def test_unknown_words_and_long_pairs_have_no_links(monkeypatch: pytest.MonkeyPatch) -> None:
    aligner = Aligner(CORPUS)
    new, house = aligner.links([(["new"], ["neu"]), (["new", "house"], ["neu", "Haus"])])
    assert new == []
    assert (1, 1) in house
    monkeypatch.setattr(module, "LONGEST", 2)
    assert [*aligner.links([CORPUS[-1], CORPUS[0], CORPUS[-1]])] == [[], [(0, 0), (1, 1)], []]
    assert [*Aligner(CORPUS[3:]).links(CORPUS[:1])] == [[]]  # learnt from nothing
    assert [*aligner.links([])] == []


def random_corpus(pairs: int) -> list[WordPair]:
    """Return sentences in which each word is translated by the same word in capitals or left out."""
    draws = Random(2)
    vocabulary = [f"w{number}" for number in range(40)]
    sources = [draws.choices(vocabulary, k=draws.randint(1, 9)) for _ in range(pairs)]
    return [(words, [word.upper() for word in words if draws.random() < 0.9] or ["X"]) for words in sources]


def test_the_compiled_functions_find_the_probabilities_of_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    corpus = random_corpus(300)
    assert compiled_kernels(module.KERNELS), "the tests need Numba"
    compiled = Aligner(corpus)
    links = [*compiled.links(corpus)]
    monkeypatch.setattr(module, "compiled_kernels", lambda name: None)
    plain = Aligner(corpus)
    np.testing.assert_array_equal(compiled._keys_K, plain._keys_K)
    np.testing.assert_allclose(compiled._tables, plain._tables, rtol=1e-6, atol=1e-9)
    assert links == [*plain.links(corpus)] == [*compiled.links(corpus)]
    assert sum(map(len, links)) > 1000


@pytest.mark.parametrize("threads", [2, 5])
def test_the_number_of_threads_changes_no_bit(threads: int) -> None:
    corpus, before = random_corpus(300), torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        alone = Aligner(corpus)
        links = [*alone.links(corpus)]
        torch.set_num_threads(threads)
        together = Aligner(corpus)
        np.testing.assert_array_equal(alone._tables, together._tables)
        assert [*together.links(corpus)] == links
    finally:
        torch.set_num_threads(before)
