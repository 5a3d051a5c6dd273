"""Length penalties as in their papers, and the bound on the score of a live hypothesis."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from nmt_cli.decoding.config import Rule
from nmt_cli.decoding.search.lengths import LengthRule


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
