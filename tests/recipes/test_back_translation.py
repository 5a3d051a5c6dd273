"""The back-translation recipe on a few generated pairs with very small models."""

import json
import subprocess
import sys
from collections.abc import Callable
from subprocess import CompletedProcess

import pytest

from tests.recipes.conftest import ToyRun


@pytest.fixture(scope="module")
def finished(toy_run: Callable[..., ToyRun]) -> ToyRun:
    return toy_run("back-translation", 2, train=120, valid=4, test_2016_flickr=4)


def test_a_third_of_the_pairs_is_bitext_and_all_others_are_only_german(finished: ToyRun) -> None:
    english, german = (
        (finished.text / f"train.{lang}").read_text("utf-8").splitlines() for lang in ("en", "de")
    )
    assert finished.lines("bitext.en") == english[::3] and finished.lines("bitext.de") == german[::3]
    assert finished.lines("synthetic.de") == [line for n, line in enumerate(german) if n % 3]


def test_synthetic_sources_are_sampled_and_begin_with_a_tag(finished: ToyRun) -> None:
    sampled, synthetic = finished.lines("sampled.en"), finished.lines("synthetic.en")
    assert synthetic == [f"<BT> {line}" if line else "" for line in sampled]
    assert len(synthetic) == 80 and len(set(sampled)) > 40
    assert finished.lines("with/dataset/tokenizer/joint.vocabulary.txt").count("<BT>") == 1
    tagged = [line for line in finished.lines("with/dataset/train.source.txt") if "<BT>" in line]
    assert len(tagged) == 80 - sampled.count("")


def test_both_systems_share_a_vocabulary_and_are_compared_on_the_test_set(finished: ToyRun) -> None:
    result = json.loads((finished.out / "result.json").read_bytes())
    without, mixed = result["without"], result["with"]
    assert without["pairs"] == 40 and mixed["pairs"] == 120 - finished.lines("sampled.en").count("")
    assert [system["updates"] for system in (without, mixed, result["back"])] == [2, 2, 2]
    assert without["p_value"] is None and 0 <= mixed["p_value"] <= 1
    assert f"| with | {mixed['pairs']} | 2 | 1 | {mixed['bleu']:.2f} |" in finished.printed
    assert finished.fingerprint("without") == finished.fingerprint("with")


def test_the_table_of_a_run_is_written_into_the_readme_once(finished: ToyRun) -> None:
    readme, table = finished.recipe / "README.md", finished.printed.splitlines()[-4:]
    assert table[-1] not in readme.read_text("utf-8")
    for _ in range(2):
        subprocess.run([sys.executable, finished.recipe / "results.py", "keep", finished.out], check=True)
    assert readme.read_text("utf-8").count("\n".join(table)) == 1
    results = (finished.recipe / "results.jsonl").read_text("utf-8").splitlines()
    assert [*map(json.loads, results)] == [json.loads((finished.out / "result.json").read_bytes())]


def test_a_run_of_another_number_of_updates_is_not_resumed(
    recipe: Callable[..., CompletedProcess[str]], finished: ToyRun
) -> None:
    refused = recipe(finished.recipe, "-d", finished.text, "-o", finished.out, 3, NMT_DATA="")
    message = f"Error: {finished.out} holds a run of 2 updates; choose another folder with -o.\n"
    assert (refused.returncode, refused.stderr) == (1, message)
