"""The compiled stepper applies a rule of a plan as PyTorch's stepper does, or is not chosen."""

from dataclasses import replace

import pytest
import torch

from nmt_cli.decoding.config import SearchConfig
from nmt_cli.decoding.ensemble import Ensemble
from nmt_cli.decoding.search.beams import Beams
from nmt_cli.decoding.search.hypotheses import PlaceholdersWanted, Sentence
from nmt_cli.decoding.search.plan import StepPlan
from nmt_cli.decoding.search.search import Search
from nmt_cli.decoding.search.steppers import CompiledStepper, TorchStepper, stepper_for
from nmt_cli.model.cache import DecodingCache
from nmt_cli.model.config import ModelConfig
from nmt_cli.model.transformer import Transformer
from nmt_cli.text.vocabulary import Vocabulary

TINY = ModelConfig(encoder_layers=1, decoder_layers=1, width=8, heads=2, feed_forward=16, tie="none")
BEAM, AGE = SearchConfig(beam=3, n_best=3, cap_extra=9), 2
PLAIN = Sentence(0, [5, 3, 8])
PLACEHOLDERS = PlaceholdersWanted((8, 9), (8,), join=10)

CASES: dict[str, tuple[SearchConfig, Sentence]] = {
    "a prefix": (BEAM, replace(PLAIN, prefix=[4, 7, 9, 5], certain=3)),
    "a cap": (replace(BEAM, max_length=AGE), PLAIN),
    "a minimum length": (replace(BEAM, min_length=9), PLAIN),
    "a repetition penalty": (replace(BEAM, repetition_penalty=2.0), PLAIN),
    "no repeated n-grams": (replace(BEAM, no_repeat_ngram=1), PLAIN),
    "banned sequences": (BEAM, replace(PLAIN, banned=[[4], [5, 3]])),
    "placeholders": (BEAM, replace(PLAIN, placeholders=PLACEHOLDERS)),
    "sampling": (SearchConfig(sample=True, n_best=3, cap_extra=9), PLAIN),
    "diversity": (replace(BEAM, diversity=0.5), PLAIN),
    "a coverage penalty": (replace(BEAM, coverage_penalty=0.5), PLAIN),
}
"""Each kind of rule, in force after `AGE` tokens."""

ONLY_BY_PYTORCH = ("sampling", "diversity", "a coverage penalty")


def begun(config: SearchConfig, sentence: Sentence, look_every: int) -> Search:
    """Return a search with two sentences that have `AGE` tokens each."""
    torch.manual_seed(5)
    vocabulary = Vocabulary(("",) * 12, end=0, start=0, unknown=1, never=(2,))
    model = Transformer(TINY, vocabulary, vocabulary, joint=True).eval()
    model.output_matrix[vocabulary.end] = 0.0  # no hypothesis ends before the comparison
    search = Search(Ensemble.of([model], config), config, look_every)
    search._stepper = TorchStepper(search._ensemble, config)
    search.join([sentence, replace(sentence, key=1, tokens=[4, 6])])
    for _ in range(AGE):
        assert not search.step()
    return search


def state_of(search: Search) -> tuple[Beams, list[DecodingCache]]:
    assert search._beams is not None
    return search._beams, search._caches


def planned(search: Search) -> StepPlan:
    return search._planner.plan(search._items, state_of(search)[0])


@pytest.mark.parametrize("case", CASES)
def test_a_rule_is_applied_as_by_pytorch(case: str) -> None:
    config, sentence = CASES[case]
    with torch.inference_mode():
        ours, theirs = (begun(config, sentence, 1) for _ in "12")
        fast, plain = (stepper_for(ours._ensemble, config, look_every) for look_every in (1, 2))
        assert isinstance(fast, CompiledStepper) == planned(ours).has_rules == (case not in ONLY_BY_PYTORCH)
        assert not isinstance(plain, CompiledStepper)
        fast.step(planned(ours), *state_of(ours))
        plain.step(planned(theirs), *state_of(theirs))
    (mine, my_caches), (expected, expected_caches) = state_of(ours), state_of(theirs)
    for name in ("totals", "ended_scores", "ended", "ages"):
        torch.testing.assert_close(getattr(mine, name), getattr(expected, name))
    assert torch.equal(mine.tokens[mine.in_use], expected.tokens[expected.in_use])
    assert torch.equal(my_caches[0].paths, expected_caches[0].paths)
