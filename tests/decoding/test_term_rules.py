"""Decoding with required terms, against brute force."""

import itertools
from collections.abc import Sequence

import numpy as np
import pytest
import torch

from nmt_cli.decoding.config import SearchConfig
from nmt_cli.decoding.search.hypotheses import Hypothesis, PlaceholdersWanted, Sentence
from nmt_cli.decoding.search.terms import (
    NOTHING,
    Term,
    TermProgress,
    TermsRule,
    WordParts,
    progress,
    word_parts,
)
from nmt_cli.model.transformer import Transformer
from nmt_cli.text.vocabulary import Vocabulary
from tests.decoding.search.test_search import TINY, log_probs_of_all, model_of
from tests.searching import translate_sentences

ENTRIES = 7
Terms = Sequence[Sequence[Sequence[int]]]
TERMS: list[Terms] = [[], [[[4]]], [[[5, 6], [3]]], [[[2, 2]], [[3], [4, 4, 4]]], [[[6]], [[5]], [[2, 4]]]]


def wanted(terms: Terms) -> tuple[Term, ...]:
    """Return terms with these forms, each a list of token ids."""
    return tuple(tuple(map(tuple, forms)) for forms in terms)


def progress_of(paths: Sequence[Sequence[int]], terms: Terms, parts: WordParts) -> TermProgress:
    """Return the progress of hypotheses of equal length."""
    rows = np.array([(NOTHING, *path) for path in paths])
    return progress(rows, [wanted(terms)] * len(rows), parts)


def contains(tokens: Sequence[int], terms: Terms) -> bool:
    """Return whether `tokens` have a form of each term."""
    return all(
        any(list(form) == list(tokens[i : i + len(form)]) for form in forms for i in range(len(tokens)))
        for forms in terms
    )


def search(seed: int, config: SearchConfig, terms: Sequence[Terms]) -> list[list[Hypothesis]]:
    """Return the translations of a sentence for each of `terms`, all in one batch."""
    sentences = [Sentence(i, [6, 3, 5], terms=wanted(each)) for i, each in enumerate(terms)]
    actual = translate_sentences([model_of(seed, ENTRIES)], sentences, config)
    return [actual[sentence.key] or [] for sentence in sentences]


@pytest.mark.parametrize("terms", [*TERMS[1:3], [[[2]], [[3], [4]]]], ids=str)
def test_a_beam_that_holds_everything_finds_the_best_translation_with_the_terms(terms: Terms) -> None:
    cap = 3
    config = SearchConfig(beam=160, n_best=5, cap_ratio=0.0, cap_extra=cap, length_penalty=0.0)
    for seed in range(2):
        actual = search(seed, config, [terms])[0]
        every = (ids for n in range(cap + 1) for ids in itertools.product(range(2, ENTRIES), repeat=n))
        fitting = [ids for ids in every if contains(ids, terms)]
        rows = log_probs_of_all(model_of(seed, ENTRIES), [6, 3, 5], fitting)
        totals = {
            ids: sum(float(row[i]) for row, i in zip(each, [*ids, 0], strict=True))
            for ids, each in zip(fitting, rows, strict=True)
        }
        best = sorted(totals, key=totals.__getitem__, reverse=True)[: len(actual)]
        assert [tuple(one.tokens) for one in actual] == best
        assert [one.score for one in actual] == pytest.approx([totals[ids] for ids in best], abs=1e-4)


@pytest.mark.parametrize(
    "config",
    [
        SearchConfig(beam=2, cap_extra=6),
        SearchConfig(beam=4, n_best=4, cap_extra=6),
        SearchConfig(beam=2, cap_ratio=0.0, cap_extra=0),
        SearchConfig(beam=3, min_length=6, no_repeat_ngram=3, cap_extra=6),
    ],
    ids=["narrow", "wide", "no room", "with other rules"],
)
def test_every_hypothesis_has_each_term(config: SearchConfig) -> None:
    for seed in range(2):
        for terms, hypotheses in zip(TERMS, search(seed, config, TERMS), strict=True):
            assert hypotheses
            assert all(contains(one.tokens, terms) for one in hypotheses)


def test_terms_and_placeholders_fit_together_without_other_room() -> None:
    config = SearchConfig(beam=2, cap_ratio=0.0, cap_extra=0)
    placeholders = PlaceholdersWanted((2, 3), (2, 3))
    terms = [[[4, 5]], [[6, 6, 6]]]
    for seed in range(4):
        sentence = Sentence(0, [6, 2, 3], placeholders=placeholders, terms=wanted(terms))
        (actual,) = translate_sentences([model_of(seed, ENTRIES)], [sentence], config)[0] or []
        assert contains(actual.tokens, [*terms, [[2]], [[3]]])


def test_sentences_without_terms_are_translated_as_alone() -> None:
    config = SearchConfig(beam=3, n_best=3)
    with_others, alone = search(1, config, TERMS)[0], search(1, config, TERMS[:1])[0]
    assert [one.tokens for one in with_others] == [one.tokens for one in alone]
    assert [one.score for one in with_others] == pytest.approx([one.score for one in alone], abs=1e-5)


def test_terms_that_the_usual_translation_has_change_nothing() -> None:
    for seed in range(3):
        model, config = model_of(seed, ENTRIES), SearchConfig(beam=3, cap_extra=6)
        plain = Sentence(0, [6, 3, 5])
        (usual,) = translate_sentences([model], [plain], config)[0] or []
        sentence = Sentence(0, plain.tokens, terms=wanted([[[token]] for token in {*usual.tokens}]))
        (actual,) = translate_sentences([model], [sentence], config)[0] or []
        assert actual.score == pytest.approx(usual.score, abs=1e-4)


def test_a_word_ends_before_a_form_if_room_is_short() -> None:
    """A token that ends with "@@" needs another one to end its word before a form."""
    entries = ("", "", "a@@", "b", "c@@", "d", "e")
    vocabulary = Vocabulary(entries, end=0, start=0, unknown=1)
    config = SearchConfig(beam=3, cap_extra=8)
    for seed in range(8):
        torch.manual_seed(seed)
        model = Transformer(TINY, vocabulary, vocabulary, joint=True).eval()
        with torch.no_grad():
            model.output_matrix.mul_(3.0)
        sentence = Sentence(0, [6, 3, 5], terms=wanted([[[3]], [[4, 6]]]))
        (actual,) = translate_sentences([model], [sentence], config)[0] or []
        words = "".join(f"{entries[token]} " for token in actual.tokens).replace("@@ ", "").split()
        assert {"b", "ce"} <= {*words}


def test_a_term_that_other_rules_forbid_does_not_stop_the_search() -> None:
    sentence = Sentence(0, [6, 3], banned=[[4]], terms=wanted([[[4]]]))
    assert translate_sentences([model_of(1, ENTRIES)], [sentence], SearchConfig(beam=2))[0]


def test_tokens_of_a_gpu_step_without_waiting_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    config = SearchConfig(beam=3, n_best=2)
    alone = search(2, config, TERMS)
    monkeypatch.setattr("nmt_cli.decoding.batch.is_gpu", lambda device: True)
    assert [[one.tokens for one in each] for each in search(2, config, TERMS)] == [
        [one.tokens for one in each] for each in alone
    ]


@pytest.mark.parametrize(
    ("entries", "complete"),
    [
        (["▁Haus", ""], True),
        (["▁Haus", "tür"], False),
        (["▁Haus", "."], True),
        (["▁Haus", "▁ist"], True),
        (["▁", "家", "人"], True),
        (["Haus", "tür"], True),
        (["Haus@@", "tür"], False),
    ],
    ids=str,
)
def test_a_form_counts_as_whole_words_only(entries: list[str], complete: bool) -> None:
    path = range(len(entries))
    state = progress_of([path], [[path[:-1]]], word_parts(tuple(entries)))
    assert (state.complete_R[0], state.missing_R[0]) == (complete, not complete)


def test_progress_is_that_of_a_definition_in_plain_words() -> None:
    """Compare all hypotheses of three tokens with what their parts have of the terms."""
    words = word_parts(("a", "▁a", ".", "▁b"))
    each = [[[1]], [[1, 2], [3, 0]], [[2, 2], [0]]]
    paths = [*itertools.product(range(4), repeat=3)]
    state = progress_of(paths, each, words)
    for row, path in enumerate(paths):
        starts = [i for i in range(4) if not (0 < i < 3 and path[i - 1] in (0, 1, 3) and path[i] == 0)]
        spans = [path[i:j] for i in starts for j in starts if i < j]
        missing = [forms for forms in each if not any(tuple(form) in spans for form in forms)]
        ahead = {
            form[n]
            for form in itertools.chain.from_iterable(missing)
            for n in range(len(form))
            if path[3 - n :] == tuple(form[:n]) and (3 - n in starts)
            if n or not (path[-1] in (0, 1, 3) and form[0] == 0)
        }
        assert state.complete_R[row] == len(each) - len(missing)
        assert {*state.tokens_N[state.rows_N == row].tolist()} == ahead


def test_a_form_completed_at_the_maximum_length_is_not_joined() -> None:
    """All tokens but the form would join it. So the end token may follow, although it is the least likely."""
    entries = ["", "", *["x"] * (ENTRIES - 2)]
    entries[4] = "▁x"
    parts = word_parts(tuple(entries))
    state = progress_of([[2, 4]], [[[4]]], parts)
    zero, totals = np.array([0]), np.zeros((1, 3), np.float32)
    log_probs = torch.arange(ENTRIES, dtype=torch.float32)[None].log_softmax(1)
    log_probs[0, 1] = -torch.inf  # the unknown token
    TermsRule(zero, zero, totals, np.array([True]), state, parts, 2).choose(log_probs, 0)
    assert (log_probs[0] > -torch.inf).nonzero().flatten().tolist() == [0, 4]
