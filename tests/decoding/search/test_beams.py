"""The beam state: the best finished hypotheses stay complete, and hopeless live ones are dropped."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from nmt_cli.decoding.config import Rule
from nmt_cli.decoding.search.beams import BLOCK, Beams, Continuations, LengthRule

SUM = LengthRule("power", 0.0)
MEAN = LengthRule("power", 1.0)
NONE = -torch.inf


def begun(sentences: int = 1, slots: int = 2, best: int = 2, cap: int = 10, pieces: int = 3) -> Beams:
    return Beams.begin(torch.full((sentences,), cap), torch.full((sentences,), pieces), slots, 1, best)


def chosen(ended: list[float], live: list[float], tokens: list[int], parents: list[int]) -> Continuations:
    """Return the choice of one step of a single sentence. Finished hypotheses have parents 0, 1, ..."""
    return Continuations(
        torch.tensor([ended]),
        torch.arange(len(ended))[None],
        torch.tensor([live]),
        torch.tensor([parents]),
        torch.tensor([tokens]),
    )


def test_a_sentence_begins_with_one_hypothesis_without_tokens() -> None:
    beams = begun(sentences=3)
    rows, newest = beams.rows()
    assert rows.tolist() == [0, 2, 4] and newest.tolist() == [0, 0, 0]


def test_hypotheses_have_the_tokens_of_their_parents() -> None:
    beams = begun()
    beams.follow(chosen([NONE, NONE], [-1.0, -2.0], [5, 6], [0, 0]), SUM)
    beams.follow(chosen([NONE, NONE], [-2.5, -3.0], [7, 8], [1, 0]), SUM)
    assert beams.tokens[0, :, :2].tolist() == [[6, 7], [5, 8]]
    assert beams.rows()[1].tolist() == [7, 8]
    beams.follow(chosen([-3.5, NONE], [NONE, NONE], [0, 0], [0, 0]), SUM)
    ((actual,),) = beams.finished(torch.tensor([0]))
    assert actual.tokens == [6, 7] and actual.token_scores == [-2.0, -0.5, -1.0]
    assert not beams.in_use.any()


def test_the_best_finished_hypotheses_are_in_order_whenever_they_finish() -> None:
    beams = begun(best=2)
    beams.follow(chosen([-4.0, NONE], [-1.0, -1.5], [5, 6], [0, 0]), SUM)
    beams.follow(chosen([-2.0, -9.0], [-1.7, NONE], [7, 0], [0, 0]), SUM)
    beams.follow(chosen([-3.0, NONE], [NONE, NONE], [0, 0], [0, 0]), SUM)
    (actual,) = beams.finished(torch.tensor([0]))
    assert [(one.score, one.tokens) for one in actual] == [(-2.0, [5]), (-3.0, [5, 7])]
    assert beams.ended.tolist() == [4]


def test_a_hypothesis_that_can_still_win_at_a_longer_length_stays() -> None:
    for rule, stays in ((SUM, False), (MEAN, True)):
        beams = begun(slots=2, best=1, cap=20)
        beams.follow(chosen([-2.0, NONE], [-41.0, NONE], [5, 0], [0, 0]), rule)
        beams.give_up_hopeless(rule, 1000.0)
        assert bool(beams.in_use.any()) is stays


@pytest.mark.parametrize(
    ("reach", "pieces", "longest"), [(2.0, 3, 8), (2.0, 15, 15), (1.5, 3, 6), (6.0, 3, 20), (1000.0, 3, 20)]
)
def test_a_hypothesis_that_could_win_only_beyond_its_reach_is_dropped(
    reach: float, pieces: int, longest: int
) -> None:
    """Check the maximum length: a multiple of its own, at least the source's, at most the cap.

    Of two totals, one would just beat the worst score at that length and stays. The other is dropped.
    """
    beams = begun(slots=4, best=1, cap=20, pieces=pieces)
    for _ in range(3):
        beams.follow(chosen([NONE] * 4, [-1.0, NONE, NONE, NONE], [5, 0, 0, 0], [0] * 4), MEAN)
    worst = -1.0
    live = [worst * (longest + 1) + 0.5, worst * (longest + 1) - 0.5]
    beams.follow(chosen([worst * 4] + [NONE] * 3, [*live, NONE, NONE], [6, 7, 0, 0], [0] * 4), MEAN)
    beams.give_up_hopeless(MEAN, reach)
    assert beams.in_use.tolist() == [[True, False, False, False]]


def test_a_sentence_ends_once_enough_hypotheses_are_finished() -> None:
    beams = begun()
    beams.follow(chosen([-2.0, NONE], [-1.0, -1.0], [5, 6], [0, 0]), SUM)
    beams.give_up_where_enough_ended(2)
    assert beams.in_use.all()
    beams.give_up_where_enough_ended(1)
    assert not beams.in_use.any()


def test_sentences_that_join_get_space_for_as_many_tokens_as_others_have() -> None:
    old = begun()
    for step in range(BLOCK + 3):
        old.make_room(step + 2)
        old.follow(chosen([NONE, NONE], [-1.0, NONE], [step, 0], [0, 0]), SUM)
    old.join(begun())
    assert old.tokens.shape[0] == 2 and old.ages.tolist() == [BLOCK + 3, 0]
    assert old.tokens[0, 0, : BLOCK + 3].tolist() == list(range(BLOCK + 3))
    old.take(torch.tensor([1]))
    assert old.ages.tolist() == [0] and old.rows()[0].tolist() == [0]


@pytest.mark.parametrize(
    ("name", "exponent", "score"),
    [("gnmt", 0.6, -6 / 1.5**0.6), ("power", 1.0, -6 / 4), ("gnmt", 0.0, -6), ("power", 0.0, -6)],
)
def test_a_score_is_the_sum_divided_by_the_length_penalty(name: Rule, exponent: float, score: float) -> None:
    actual = LengthRule(name, exponent).score(torch.tensor(-6.0), torch.tensor(4))
    assert float(actual) == pytest.approx(score)


@given(
    name=st.sampled_from(["gnmt", "power"]),
    exponent=st.floats(0, 2),
    total=st.floats(-50, 0),
    least=st.integers(1, 20),
    more=st.integers(0, 20),
)
def test_no_length_has_a_better_score_than_the_bound(
    name: Rule, exponent: float, total: float, least: int, more: int
) -> None:
    rule, sums = LengthRule(name, exponent), torch.tensor([total])
    lengths = torch.arange(least, least + more + 1)
    best = max(rule.score(sums, length).item() for length in lengths)
    assert rule.bound(sums, lengths[:1], lengths[-1:]).item() == pytest.approx(best, rel=1e-5)
