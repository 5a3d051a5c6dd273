"""The recipe of mixing as a user runs it, on a few generated pairs and with a very small model."""

import json
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest

Recipe = Callable[..., CompletedProcess[str]]
SIZES = {"train": 90, "test_2016_flickr": 4}
SYSTEMS = ("alone", "together", "stages")
UPDATES = 10


@pytest.fixture(scope="module")
def finished(
    recipe: Recipe, recipe_copy: Callable[[str], Path], toy_text: Callable[..., Path], tiny_settings: str
) -> tuple[Path, str]:
    """Where a copy of the recipe, run once to its end, has left its results, and what it printed."""
    copied = recipe_copy("mixing")
    (copied / "train.toml").write_text(tiny_settings, encoding="utf-8")
    text, out = toy_text(copied.parents[1] / "text", **SIZES), copied.parents[1] / "out"
    done = recipe(copied, "-d", text, "-o", out, UPDATES, NMT_DATA="", PREPROCESS="--vocab-size 120")
    assert done.returncode == 0, done.stderr
    return out, done.stdout


def steps(out: Path, system: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / system / "log.jsonl").read_text("utf-8").splitlines()]


def test_a_third_is_bitext_and_of_the_others_the_english_is_spoilt(finished: tuple[Path, str]) -> None:
    out, text = finished[0], finished[0].parent / "text"
    whole = (text / "train.en").read_text("utf-8").splitlines()
    assert (out / "bitext.en").read_text("utf-8").splitlines() == whole[::3]
    others = [line for number, line in enumerate(whole) if number % 3]
    spoilt = (out / "synthetic.en").read_text("utf-8").splitlines()
    assert len(spoilt) == len(others) == 60
    same = sum(a == b for a, b in zip(others, spoilt, strict=True))
    assert same < 30 and all({*b.split()} <= {*a.split()} for a, b in zip(others, spoilt, strict=True))


def test_three_models_differ_in_their_mixture_alone(finished: tuple[Path, str]) -> None:
    out, printed = finished
    assert all(f"{name}.de" in printed for name in SYSTEMS)
    assert {*steps(out, "alone")[-1]["corpus_epochs"]} == {"bitext"}
    assert "stage" not in steps(out, "together")[0]
    staged = steps(out, "stages")
    assert [step["stage"] for step in staged] == sorted(step["stage"] for step in staged)
    assert {step["stage"] for step in staged} == {1, 2}
    mixed = [step["corpus_pairs"] for step in staged if step["stage"] == 1]
    assert (
        sum(step.get("bitext", 0) for step in mixed) == sum(step.get("synthetic", 0) for step in mixed) == 30
    )
    assert all([*step["corpus_pairs"]] == ["bitext"] for step in staged if step["stage"] == 2)


def test_without_text_the_command_says_how_it_is_called(recipe: Recipe) -> None:
    refused = recipe("mixing", NMT_DATA="")
    assert refused.returncode == 2 and "run.sh [-d DATA]" in refused.stderr
