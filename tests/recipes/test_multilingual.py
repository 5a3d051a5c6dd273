"""The recipe of many languages as a user runs it, on a few generated pairs and with a very small model."""

import json
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

Recipe = Callable[..., CompletedProcess[str]]
SIZES = {"train": 100, "test_2016_flickr": 4}


@pytest.fixture(scope="module")
def finished(
    recipe: Recipe, recipe_copy: Callable[[str], Path], toy_text: Callable[..., Path], tiny_settings: str
) -> tuple[Path, str]:
    """Where a copy of the recipe, run once to its end, has left its results, and what it printed."""
    copied = recipe_copy("multilingual")
    (copied / "train.toml").write_text(tiny_settings, encoding="utf-8")
    text, out = toy_text(copied.parents[1] / "text", ("en", "de", "fr"), **SIZES), copied.parents[1] / "out"
    done = recipe(copied, "-d", text, "-o", out, 2, NMT_DATA="", PREPROCESS="--vocab-size 120")
    assert done.returncode == 0, done.stderr
    return out, done.stdout


def test_both_directions_are_corpora_of_one_dataset_each_with_its_tag(finished: tuple[Path, str]) -> None:
    out, _ = finished
    split = json.loads((out / "both" / "dataset" / "dataset.json").read_bytes())["splits"]["train"]
    assert [(each["name"], each["pairs"], each["tag"]) for each in split["corpora"]] == [
        ("en-de", 100, "<2de>"),
        ("en-fr", 20, "<2fr>"),
    ]
    lines = (out / "both" / "dataset" / "train.source.txt").read_text(encoding="utf-8").splitlines()
    assert [line.split()[0] for line in lines] == ["<2de>"] * 100 + ["<2fr>"] * 20


def test_temperature_brings_up_the_smaller_one(finished: tuple[Path, str]) -> None:
    log = (finished[0] / "both" / "training" / "log.jsonl").read_text(encoding="utf-8").splitlines()
    seen = [json.loads(line)["corpus_pairs"] for line in log]
    french, german = (sum(step[name] for step in seen) for name in ("en-fr", "en-de"))
    assert french / (french + german) == pytest.approx(20**0.2 / (20**0.2 + 100**0.2), abs=0.05)


def test_each_direction_is_scored_in_one_model_and_in_its_own(finished: tuple[Path, str]) -> None:
    out, printed = finished
    for lang in ("de", "fr"):
        assert f"{lang}/alone.{lang}" in printed and f"both/both.{lang}" in printed
        assert len((out / "both" / f"both.{lang}").read_text(encoding="utf-8").splitlines()) == 4
    fingerprints = {
        json.loads((out / name / "dataset" / "dataset.json").read_bytes())["tokenizer"]["fingerprint"]
        for name in ("both", "de", "fr")
    }
    assert len(fingerprints) == 1


def test_without_text_the_command_says_how_it_is_called(recipe: Recipe) -> None:
    refused = recipe("multilingual", NMT_DATA="")
    assert refused.returncode == 2 and "run.sh [-d DATA]" in refused.stderr
