"""The back-translation recipe as a user runs it, on a few generated pairs and with very small models."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

Recipe = Callable[..., CompletedProcess[str]]
SIZES = {"train": 120, "valid": 4, "test_2016_flickr": 4}


@pytest.fixture(scope="module")
def copied(recipe_copy: Callable[[str], Path], toy_text: Callable[..., Path], tiny_settings: str) -> Path:
    """A copy of the recipe with a very small model, and toy text in a folder beside it."""
    recipe = recipe_copy("back-translation")
    (recipe / "train.toml").write_text(tiny_settings, encoding="utf-8")
    toy_text(recipe.parents[1] / "text", **SIZES)
    return recipe


@pytest.fixture(scope="module")
def finished(recipe: Recipe, copied: Path) -> tuple[Path, str]:
    """Where the recipe, run once to its end, has left its results, and what it printed."""
    out = copied.parents[1] / "out"
    done = recipe(
        copied, "-d", copied.parents[1] / "text", "-o", out, 2, NMT_DATA="", PREPROCESS="--vocab-size 120"
    )
    assert done.returncode == 0, done.stderr
    return out, done.stdout


def lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines()


def test_a_third_of_the_pairs_is_bitext_and_the_rest_is_german_alone(
    copied: Path, finished: tuple[Path, str]
) -> None:
    out, text = finished[0], copied.parents[1] / "text"
    assert lines(out / "bitext.en") == lines(text / "train.en")[::3]
    assert lines(out / "bitext.de") == lines(text / "train.de")[::3]
    everything = lines(text / "train.de")
    assert lines(out / "synthetic.de") == [line for n, line in enumerate(everything) if n % 3]


def test_synthetic_sources_are_sampled_and_begin_with_one_symbol(finished: tuple[Path, str]) -> None:
    out, _ = finished
    sampled, synthetic = lines(out / "sampled.en"), lines(out / "synthetic.en")
    assert synthetic == [f"<BT> {line}" if line else "" for line in sampled]
    assert len(synthetic) == 80 and len(set(sampled)) > 40
    vocabulary = lines(out / "with" / "dataset" / "tokenizer" / "joint.vocabulary.txt")
    assert vocabulary.count("<BT>") == 1
    tagged = [line for line in lines(out / "with" / "dataset" / "train.source.txt") if "<BT>" in line]
    assert len(tagged) == 80 - sampled.count("")


def test_both_systems_have_one_vocabulary_and_are_compared_on_the_test_set(
    finished: tuple[Path, str],
) -> None:
    out, printed = finished
    result = json.loads((out / "result.json").read_bytes())
    without, mixed = result["without"], result["with"]
    assert without["pairs"] == 40 and mixed["pairs"] == 120 - lines(out / "sampled.en").count("")
    assert [system["updates"] for system in (without, mixed, result["back"])] == [2, 2, 2]
    assert without["p_value"] is None and 0 <= mixed["p_value"] <= 1
    assert f"| with | {mixed['pairs']} | 2 | 1 | {mixed['bleu']:.2f} |" in printed
    kept = [
        json.loads((out / name / "dataset" / "dataset.json").read_bytes()) for name in ("without", "with")
    ]
    assert kept[0]["tokenizer"]["fingerprint"] == kept[1]["tokenizer"]["fingerprint"]


def test_the_readme_gets_what_was_measured(copied: Path, finished: tuple[Path, str]) -> None:
    out, printed = finished
    assert printed.splitlines()[-1] not in (copied / "README.md").read_text(encoding="utf-8")
    for _ in range(2):
        subprocess.run([sys.executable, copied / "results.py", "keep", out], check=True)
    text = (copied / "README.md").read_text(encoding="utf-8")
    assert text.count("\n".join(printed.splitlines()[-4:])) == 1
    assert [*map(json.loads, lines(copied / "results.jsonl"))] == [
        json.loads((out / "result.json").read_bytes())
    ]


def test_a_run_of_other_updates_is_not_gone_on_with(
    recipe: Recipe, copied: Path, finished: tuple[Path, str]
) -> None:
    out, _ = finished
    refused = recipe(copied, "-d", copied.parents[1] / "text", "-o", out, 3, NMT_DATA="")
    told = f"Error: {out} holds a run of 2 updates; choose another place with -o.\n"
    assert (refused.returncode, refused.stderr) == (1, told)


def test_without_text_the_command_says_how_it_is_called(recipe: Recipe, copied: Path) -> None:
    refused = recipe(copied, NMT_DATA="")
    assert refused.returncode == 2 and "run.sh [-d DATA]" in refused.stderr
