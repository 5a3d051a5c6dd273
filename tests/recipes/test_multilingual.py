"""The multilingual recipe on a few generated pairs with a very small model."""

import json
from collections.abc import Callable

import pytest

from tests.recipes.conftest import ToyRun


@pytest.fixture(scope="module")
def finished(toy_run: Callable[..., ToyRun]) -> ToyRun:
    return toy_run("multilingual", 2, ("en", "de", "fr"), train=100, test_2016_flickr=4)


def test_one_dataset_has_a_corpus_with_a_tag_for_each_direction(finished: ToyRun) -> None:
    split = json.loads((finished.out / "both" / "dataset" / "dataset.json").read_bytes())["splits"]["train"]
    assert [(corpus["name"], corpus["pairs"], corpus["tag"]) for corpus in split["corpora"]] == [
        ("en-de", 100, "<2de>"),
        ("en-fr", 20, "<2fr>"),
    ]
    sources = finished.lines("both/dataset/train.source.txt")
    assert [line.split()[0] for line in sources] == ["<2de>"] * 100 + ["<2fr>"] * 20


def test_temperature_sampling_raises_the_share_of_the_smaller_corpus(finished: ToyRun) -> None:
    pairs = [step["corpus_pairs"] for step in finished.records("both/training/log.jsonl")]
    french, german = (sum(step[name] for step in pairs) for name in ("en-fr", "en-de"))
    assert french / (french + german) == pytest.approx(20**0.2 / (20**0.2 + 100**0.2), abs=0.05)


def test_each_direction_is_scored_with_the_shared_and_a_separate_model(finished: ToyRun) -> None:
    for lang in ("de", "fr"):
        assert f"{lang}/alone.{lang}" in finished.printed and f"both/both.{lang}" in finished.printed
        assert len(finished.lines(f"both/both.{lang}")) == 4
    assert len({finished.fingerprint(name) for name in ("both", "de", "fr")}) == 1
