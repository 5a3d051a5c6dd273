"""The compiled step of a search equals the sequence of its parts."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from nmt_cli.decoding.search import compiled
from nmt_cli.decoding.search.beams import Beams, LengthRule
from nmt_cli.decoding.search.expansion import best
from nmt_cli.decoding.search.steppers import UNLIMITED

VOCABULARY, END, STEPS = 7, 3, 6


def beam_rules(banned: Tensor, rule: LengthRule, enough: int) -> compiled.BeamRules:
    exponent, reach = np.float32(rule.exponent), np.float32(2.0)
    return compiled.BeamRules(banned.numpy(), END, rule.name == "gnmt", exponent, reach, enough)


def taken(beams: Beams, log_probs: Tensor, rows: Tensor, rule: LengthRule) -> Tensor:
    """Take a step by its parts. Return the parents."""
    choice = best(log_probs, rows, beams.totals, END)
    beams.follow(choice, rule)
    beams.give_up_hopeless(rule, 2.0)
    return choice.live_parents


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(
    sentences=st.integers(1, 3),
    slots=st.integers(1, 4),
    kept=st.integers(1, 3),
    enough=st.sampled_from([None, 1, 3]),
    rule=st.sampled_from([LengthRule("gnmt", 0.6), LengthRule("power", 1.0), LengthRule("gnmt", 0.0)]),
    seed=st.integers(0, 10**6),
)
def test_the_compiled_step_continues_and_ends_the_same_hypotheses(
    sentences: int, slots: int, kept: int, enough: int | None, rule: LengthRule, seed: int
) -> None:
    draw = torch.Generator().manual_seed(seed)
    caps, pieces = (torch.randint(2, STEPS, (sentences,), generator=draw) for _ in range(2))
    ours, plain = (Beams.begin(caps, pieces, slots, 1, min(kept, slots)) for _ in range(2))
    for age in range(STEPS):
        rows, _ = plain.rows()
        if not len(rows):
            break
        logits = 3 * torch.randn(len(rows), VOCABULARY, generator=draw)
        log_probs, raw = logits.log_softmax(1), age % 2 == 0
        banned = torch.randperm(VOCABULARY, generator=draw)[:2]
        if raw:
            log_probs[:, banned] = -torch.inf
        else:  # banned before
            log_probs[torch.rand(log_probs.shape, generator=draw) < 0.3] = -torch.inf
        x = logits if raw else log_probs
        expected = taken(plain, log_probs, rows, rule)
        if enough:
            plain.give_up_where_enough_ended(enough)
        rules = beam_rules(banned, rule, enough or UNLIMITED)
        actual = ours.advance(x.clone(), raw, rows, rules, compiled)
        assert torch.equal(ours.in_use, plain.in_use)
        assert torch.equal(actual[plain.in_use], expected[plain.in_use])
        assert torch.equal(ours.tokens[ours.in_use][:, : age + 1], plain.tokens[plain.in_use][:, : age + 1])
        for name in ("ages", "ended"):
            assert torch.equal(getattr(ours, name), getattr(plain, name))
        for name in ("totals", "ended_scores"):
            torch.testing.assert_close(getattr(ours, name), getattr(plain, name), rtol=1e-5, atol=1e-6)
    sentence_numbers = torch.arange(sentences)
    for mine, theirs in zip(ours.finished(sentence_numbers), plain.finished(sentence_numbers), strict=True):
        assert [one.tokens for one in mine] == [one.tokens for one in theirs]
        for one, other in zip(mine, theirs, strict=True):
            assert one.token_scores == pytest.approx(other.token_scores, rel=1e-5, abs=1e-4)


def test_a_hypothesis_with_a_total_of_nan_is_dropped() -> None:
    beams = Beams.begin(torch.tensor([5]), torch.tensor([2]), 2, 1, 1)
    nothing = torch.tensor([], dtype=torch.int64)
    x = torch.full((1, VOCABULARY), torch.nan)
    rules = beam_rules(nothing, LengthRule("gnmt", 0.6), UNLIMITED)
    beams.advance(x, True, torch.tensor([0]), rules, compiled)
    assert not beams.in_use.any() and beams.finished(torch.tensor([0])) == [[]]
