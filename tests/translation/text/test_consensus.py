"""Minimum Bayes risk, compared with sacrebleu and the definition."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sacrebleu import CHRF

from nmt_cli.decoding.attention_maps import source_attention
from nmt_cli.decoding.config import SearchConfig, TranslateConfig
from nmt_cli.decoding.search.hypotheses import Hypothesis
from nmt_cli.translation.loading import load
from nmt_cli.translation.text.consensus import Alternatives, chrf, probabilities
from nmt_cli.translation.text.ranking import rank
from tests.translation.conftest import ON_CPU

CHRF_OF = CHRF()

ROWS = st.lists(st.integers(0, 5), max_size=9)
LISTS = st.lists(st.tuples(ROWS, st.floats(-9, 0)), min_size=1, max_size=6)


def written(row: Sequence[int]) -> str:
    """Return `row` in letters with a space, which chrF ignores."""
    return " ".join(
        ("".join(chr(ord("a") + i) for i in row[:3]), "".join(chr(ord("a") + i) for i in row[3:]))
    )


def sacrebleus_chrf_of(row: Sequence[int], reference: Sequence[int]) -> float:
    return float(CHRF_OF.sentence_score(written(row), [written(reference)]).score) / 100


def hypothesis(row: Sequence[int], score: float) -> Hypothesis:
    return Hypothesis(row, score, [score / (len(row) + 1)] * (len(row) + 1))


def ranked(
    hypotheses: Sequence[Hypothesis], search: SearchConfig, text: Callable[[Hypothesis], str]
) -> list[Hypothesis]:
    (best,) = rank([Alternatives("", hypotheses, [text(one) for one in hypotheses])], search, None)
    return best


@given(st.lists(ROWS, min_size=1, max_size=6))
def test_scores_equal_those_of_sacrebleu(rows: list[list[int]]) -> None:
    expected = [[sacrebleus_chrf_of(row, other) for other in rows] for row in rows]
    assert chrf(rows).tolist() == [pytest.approx(row, abs=1e-9) for row in expected]


@given(LISTS, st.sampled_from(["gnmt", "power"]), st.floats(0, 2))
def test_probabilities_of_a_beam_follow_from_the_scores(
    beam: list[tuple[list[int], float]], rule: Any, penalty: float
) -> None:
    search = SearchConfig(mbr="chrf", length_rule=rule, length_penalty=penalty)
    length = len(beam[0][0]) + 1
    # A score is a log-probability divided by this value, which is that of the first hypothesis.
    divisor = (length if rule == "power" else (5 + length) / 6) ** penalty
    best = max(score for _, score in beam)
    likely = [math.exp((score - best) * divisor) for _, score in beam]
    got = probabilities([hypothesis(*one) for one in beam], search)
    assert got.tolist() == pytest.approx([one / sum(likely) for one in likely], rel=1e-4, abs=1e-9)


@given(LISTS, st.booleans())
def test_the_highest_expected_score_is_first(beam: list[tuple[list[int], float]], drawn: bool) -> None:
    search = SearchConfig(mbr="chrf", beam=8, n_best=3, sample=drawn)
    hypotheses = [hypothesis(*one) for one in beam]
    likely = [1 / len(beam)] * len(beam) if drawn else probabilities(hypotheses, search).tolist()
    expected = [
        sum(p * sacrebleus_chrf_of(row, other) for p, (other, _) in zip(likely, beam, strict=True))
        for row, _ in beam
    ]
    chosen = ranked(hypotheses, search, lambda one: written(one.tokens))
    assert [one.rank_score for one in chosen] == pytest.approx(sorted(expected, reverse=True)[:3], abs=1e-9)
    of = [(replace(one, rank_score=None), value) for one, value in zip(hypotheses, expected, strict=True)]
    for one in chosen:
        values = [value for other, value in of if other == replace(one, rank_score=None)]
        assert pytest.approx(one.rank_score, abs=1e-9) in values


def test_of_equal_hypotheses_the_better_score_is_first() -> None:
    beam = [hypothesis([1, 2], -1.0), hypothesis([3, 4], -1.0)]
    (chosen,) = ranked(beam, SearchConfig(mbr="chrf"), str)
    assert chosen.tokens == [1, 2]


def test_the_most_frequent_sample_is_first() -> None:
    beam = [hypothesis([9, 9], -0.1), *(hypothesis([1, 2, 3], -5.0) for _ in range(3))]
    assert ranked(beam, SearchConfig(mbr="chrf", sample=True), str)[0].tokens == [1, 2, 3]
    assert ranked(beam, SearchConfig(mbr="chrf"), str)[0].tokens == [9, 9]


def test_the_whole_beam_is_ranked(made_models: Path) -> None:
    plain = TranslateConfig(search=SearchConfig(beam=6, n_best=6, length_penalty=1.0))
    loaded = load([made_models / "copies"], plain, ON_CPU)
    lines = ["abcde ab", "d", "", f"{'a' * 40}. {'b' * 40}."]
    every = loaded.translator.translate(loaded.decoder, lines)
    search = replace(plain.search, mbr="chrf", n_best=2)
    taken = loaded.translator.translate(loaded.decoder, lines, loaded.options(search))
    decode = loaded.translator.tokenizers.target.decode
    for plain_one, taken_one in zip(every, taken, strict=True):
        parts = zip(*(one.parts for one in plain_one.candidates), strict=True)
        expected = [ranked(part, search, lambda one: decode(one.tokens)) for part in parts]
        assert [[*one.parts] for one in taken_one.candidates] == [
            [*one] for one in zip(*expected, strict=True)
        ]


def test_every_translation_is_aligned_since_each_may_be_the_best(made_models: Path) -> None:
    search = SearchConfig(beam=3, n_best=3, mbr="chrf")
    loaded = load([made_models / "copies"], TranslateConfig(search=search), ON_CPU)
    options = loaded.options(search, aligned=True)
    for one in loaded.translator.translate(loaded.decoder, ["abcde ab", "", "d"], options):
        for candidate in one.candidates:
            (sentence,), (part,) = one.line.sentences, candidate.parts
            (expected_TS,) = source_attention(loaded.models[0], [(sentence.tokens, part.tokens)])
            assert part.attention_TS is not None
            assert part.attention_TS.tolist() == [
                pytest.approx(row, abs=1e-5) for row in expected_TS.tolist()
            ]


def test_the_number_of_samples_is_the_beam_size(made_models: Path) -> None:
    drawn = SearchConfig(sample=True, mbr="chrf", beam=16, n_best=16, seed=5)
    loaded = load([made_models / "copies"], TranslateConfig(search=drawn), ON_CPU)
    (beam,) = loaded.translator.translate(loaded.decoder, ["abc"])
    assert len(beam.candidates) == 16
