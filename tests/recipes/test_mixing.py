"""The mixing recipe on a few generated pairs with a very small model."""

from collections.abc import Callable

import pytest

from tests.recipes.conftest import ToyRun

UPDATES = 10


@pytest.fixture(scope="module")
def finished(toy_run: Callable[..., ToyRun]) -> ToyRun:
    return toy_run("mixing", UPDATES, train=90, test_2016_flickr=4)


def test_a_third_of_the_pairs_is_bitext_and_all_others_have_noisy_english(finished: ToyRun) -> None:
    english = (finished.text / "train.en").read_text("utf-8").splitlines()
    assert finished.lines("bitext.en") == english[::3]
    original, noisy = [line for n, line in enumerate(english) if n % 3], finished.lines("synthetic.en")
    assert len(noisy) == len(original) == 60
    pairs = [*zip(original, noisy, strict=True)]
    assert sum(clean == spoilt for clean, spoilt in pairs) < 30
    assert all({*spoilt.split()} <= {*clean.split()} for clean, spoilt in pairs)


def test_two_models_are_trained_on_different_mixtures(finished: ToyRun) -> None:
    assert all(f"{name}.de" in finished.printed for name in ("alone", "together"))
    assert {*finished.records("alone/log.jsonl")[-1]["corpus_epochs"]} == {"bitext"}
    assert "corpus_epochs" not in finished.records("together/log.jsonl")[0]
