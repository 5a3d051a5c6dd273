"""Every stepper applies a rule of a plan as PyTorch's stepper does, or declines the plan."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from nmt_cli.decoding.config import SearchConfig
from nmt_cli.decoding.ensemble import Ensemble
from nmt_cli.decoding.search.beams import Beams
from nmt_cli.decoding.search.hypotheses import PlaceholdersWanted, Sentence
from nmt_cli.decoding.search.plan import RULES, Forced, StepPlan
from nmt_cli.decoding.search.search import Search
from nmt_cli.decoding.search.steppers import CompiledStepper, TorchStepper, take_step
from nmt_cli.model.cache import DecodingCache
from nmt_cli.model.config import ModelConfig
from nmt_cli.model.transformer import Transformer
from nmt_cli.runtime.kernels.loading import compiled_kernels
from nmt_cli.text.vocabulary import Vocabulary

TINY = ModelConfig(encoder_layers=1, decoder_layers=1, width=8, heads=2, feed_forward=16, tie="none")
BEAM, AGE = SearchConfig(beam=3, n_best=3, cap_extra=9), 2
PLAIN = Sentence(0, [5, 3, 8])
PLACEHOLDERS = PlaceholdersWanted((8, 9), (8,), join=10)

CASES: dict[str, tuple[str, SearchConfig, Sentence]] = {
    "a prefix": ("forced", BEAM, replace(PLAIN, prefix=[4, 7, 9, 5], certain=3)),
    "a cap": ("forced", replace(BEAM, max_length=AGE), PLAIN),
    "a minimum length": ("too_early_R", replace(BEAM, min_length=9), PLAIN),
    "a repetition penalty": ("history", replace(BEAM, repetition_penalty=2.0), PLAIN),
    "no repeated n-grams": ("history", replace(BEAM, no_repeat_ngram=1), PLAIN),
    "banned sequences": ("history", BEAM, replace(PLAIN, banned=[[4], [5, 3]])),
    "placeholders": ("history", BEAM, replace(PLAIN, placeholders=PLACEHOLDERS)),
    "sampling": ("draws_R", SearchConfig(sample=True, n_best=3, cap_extra=9), PLAIN),
    "diversity": ("diversity", replace(BEAM, diversity=0.5), PLAIN),
    "a coverage penalty": ("coverage_penalty", replace(BEAM, coverage_penalty=0.5), PLAIN),
}
"""What puts each rule of a plan in force after `AGE` tokens."""


def begun(config: SearchConfig, sentence: Sentence, look_every: int) -> Search:
    """Return a search with two sentences that have `AGE` tokens each."""
    torch.manual_seed(5)
    vocabulary = Vocabulary(("",) * 12, end=0, start=0, unknown=1, never=(2,))
    model = Transformer(TINY, vocabulary, vocabulary, joint=True).eval()
    model.output_matrix[vocabulary.end] = 0.0  # no hypothesis ends before the comparison
    search = Search(Ensemble.of([model], config), config, look_every)
    search._steppers = search._steppers[-1:]
    search.join([sentence, replace(sentence, key=1, tokens=[4, 6])])
    for _ in range(AGE):
        assert not search.step()
    return search


def state_of(search: Search) -> tuple[Beams, list[DecodingCache]]:
    assert search._beams is not None
    return search._beams, search._caches


def planned(search: Search) -> StepPlan:
    return search._planner.plan(search._items, state_of(search)[0])


def compiled_stepper(search: Search) -> CompiledStepper:
    kernels = compiled_kernels("decoding.search")
    assert kernels, "the tests need Numba"
    return CompiledStepper(search._ensemble, search._config, kernels)


def test_every_rule_has_a_case() -> None:
    assert {rule for rule, *_ in CASES.values()} == {*RULES}


@pytest.mark.parametrize("case", CASES)
def test_a_rule_is_applied_as_by_pytorch_or_declined(case: str) -> None:
    rule, config, sentence = CASES[case]
    with torch.inference_mode():
        ours, theirs = (begun(config, sentence, 1) for _ in "12")
        fast, plain = compiled_stepper(ours), TorchStepper(ours._ensemble, ours._config)
        assert rule in planned(ours).in_force
        if not planned(ours).in_force <= fast.rules:
            with pytest.raises(AssertionError, match=rule):
                take_step([fast], planned(ours), *state_of(ours))
        take_step([fast, plain], planned(ours), *state_of(ours))
        plain.step(planned(theirs), *state_of(theirs))
    (mine, my_caches), (expected, expected_caches) = state_of(ours), state_of(theirs)
    for name in ("totals", "ended_scores", "ended", "ages"):
        torch.testing.assert_close(getattr(mine, name), getattr(expected, name))
    assert torch.equal(mine.tokens[mine.in_use], expected.tokens[expected.in_use])
    assert torch.equal(my_caches[0].paths, expected_caches[0].paths)


def test_a_stepper_that_lacks_a_rule_in_force_is_not_used() -> None:
    class Knows:
        def __init__(self, *rules: str) -> None:
            self.rules, self.steps = frozenset(rules), 0

        def step(self, *given: object) -> None:
            self.steps += 1

    with torch.inference_mode():
        search = begun(BEAM, PLAIN, 1)
        plan = planned(search)
    assert not plan.in_force
    forced = Forced(np.array([4]), np.array([False]))
    both = replace(plan, forced=forced, diversity=0.1)
    one, other = Knows("forced"), Knows("forced", "diversity")
    for given in (plan, replace(plan, forced=forced), both):
        take_step([one, other], given, *state_of(search))  # type: ignore[list-item]
    assert (one.steps, other.steps) == (2, 1)
