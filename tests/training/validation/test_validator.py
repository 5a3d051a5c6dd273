"""When validations are due, and which of their results a checkpoint stores."""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from types import SimpleNamespace
from typing import Any, cast

import pytest

from nmt_cli.scoring.config import Metric
from nmt_cli.scoring.measures import Score
from nmt_cli.training.config import TrainConfig
from nmt_cli.training.progress import Position
from nmt_cli.training.validation.judge import Judgement
from nmt_cli.training.validation.validator import Validator

Validators = Callable[..., Validator]


@pytest.fixture
def validator(tiny: Callable[..., TrainConfig]) -> Validators:
    """Return a function that makes a validator of sets with a loss of 2 and fixed scores."""

    def make(step: int, *settings: str, sets: Sequence[str] = ("dev",), **scores: float) -> Validator:
        def judged(model: object, split: str) -> Judgement:
            actual = [
                Score(cast(Metric, metric), metric, "", score, "", "") for metric, score in scores.items()
            ]
            return Judgement(split, 2.0, 7.4, 9.0, actual, [])

        facts = {"first_set": "", "bleu_tokenizer": "auto"}
        judge = SimpleNamespace(dataset=SimpleNamespace(valid_sets=sets), judge=judged, **facts)
        config = tiny("validation.every_steps=10", *settings)
        return Validator(config, cast(Any, judge), cast(Any, None), None, Position(step=step))

    return make


@pytest.mark.parametrize(("step", "due"), [(0, False), (10, True), (15, False), (20, True)])
def test_validations_are_due_every_n_steps(validator: Validators, step: int, due: bool) -> None:
    assert validator(step).due is due


def test_a_validation_that_is_done_is_not_due(validator: Validators) -> None:
    some = validator(10, bleu=20.0, chrf=40.0)
    some.validate()
    assert not some.due


def test_without_a_set_or_at_an_interval_of_0_none_is_wanted(validator: Validators) -> None:
    assert not validator(10, sets=()).enabled
    assert not validator(10, "validation.every_steps=0").enabled


@pytest.mark.parametrize(("metric", "score"), [("bleu", 20.0), ("chrf", 40.0), ("nll", -2.0)])
def test_the_first_set_gives_the_score_of_the_step_and_larger_is_better(
    validator: Validators, metric: str, score: float
) -> None:
    some = validator(10, f"validation.metric={metric}", bleu=20.0, chrf=40.0)
    before = some.done
    assert [judgement.name for judgement in some.validate()] == ["dev"]
    assert (before, some.done) == (False, True)
    assert some.position.scores == {"10": score}


def test_a_checkpoint_restores_the_validations(validator: Validators) -> None:
    some = validator(10, bleu=20.0, chrf=40.0)
    some.validate()
    stored = json.loads(json.dumps(asdict(some.position)))
    assert Position(**stored) == some.position
