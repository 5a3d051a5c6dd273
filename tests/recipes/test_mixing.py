"""The recipe of mixing on a few generated pairs and with a very small model."""

from collections.abc import Callable
from itertools import compress

import pytest

from tests.recipes.conftest import ToyRun

UPDATES = 10


@pytest.fixture(scope="module")
def finished(toy_run: Callable[..., ToyRun]) -> ToyRun:
    return toy_run("mixing", UPDATES, train=90, test_2016_flickr=4)


def test_a_third_is_bitext_and_the_english_of_the_rest_is_noisy(finished: ToyRun) -> None:
    english = (finished.text / "train.en").read_text("utf-8").splitlines()
    assert finished.lines("bitext.en") == english[::3]
    rest, noisy = [line for n, line in enumerate(english) if n % 3], finished.lines("synthetic.en")
    assert len(noisy) == len(rest) == 60
    pairs = [*zip(rest, noisy, strict=True)]
    assert sum(clean == spoilt for clean, spoilt in pairs) < 30
    assert all({*spoilt.split()} <= {*clean.split()} for clean, spoilt in pairs)


def test_three_models_differ_in_their_mixture_alone(finished: ToyRun) -> None:
    assert all(f"{name}.de" in finished.printed for name in ("alone", "together", "stages"))
    assert {*finished.records("alone/log.jsonl")[-1]["corpus_epochs"]} == {"bitext"}
    assert "stage" not in finished.records("together/log.jsonl")[0]
    staged = finished.records("stages/log.jsonl")
    stages = [step["stage"] for step in staged]
    assert stages == sorted(stages) and {*stages} == {1, 2}
    first = [*compress((step["corpus_pairs"] for step in staged), (stage == 1 for stage in stages))]
    assert [sum(pairs.get(name, 0) for pairs in first) for name in ("bitext", "synthetic")] == [30, 30]
    assert all([*step["corpus_pairs"]] == ["bitext"] for step in staged if step["stage"] == 2)
