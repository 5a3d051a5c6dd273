"""The Multi30k recipe on a few generated pairs with a very small model."""

import gzip
import json
import re
import subprocess
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nmt_cli.demo import corpus as grammar
from recipes.multi30k import results
from tests.recipes.conftest import Recipe

SMALL = "--set tokenizer.merges=200"
SIZES = {"train": 300, "valid": 4, "test_2016_flickr": 4}


def write_corpus(folder: Path, ending: str, *, lowercase: bool) -> None:
    """Write generated pairs. Lower-cased validation and test sets are compressed, like the published ones."""
    folder.mkdir(parents=True)
    for name, size in SIZES.items():
        pairs = grammar.corpus(name.partition("_")[0], size, seed=1)
        for language, lines in (("en", [pair.en for pair in pairs]), ("de", [pair.de for pair in pairs])):
            text = "".join(f"{line}\n" for line in lines)
            text = re.sub(r"([.,?])", r" \1", text.lower()) if lowercase else text
            path = folder / f"{name}{ending}.{language}"
            if lowercase and name != "train":
                path.with_name(f"{path.name}.gz").write_bytes(gzip.compress(text.encode()))
            else:
                path.write_text(text, encoding="utf-8")


@pytest.fixture(scope="module")
def copied(recipe_copy: Callable[[str], Path], tiny_settings: str) -> Path:
    """Return a copy of the recipe with settings of a very small model. A sibling folder has the text."""
    copy = recipe_copy("multi30k")
    data = copy.parents[1] / "multi30k"
    write_corpus(data, "", lowercase=False)
    write_corpus(data / "tok", ".lc.norm.tok", lowercase=True)
    for text in ("raw", "tok"):
        (copy / text / "tiny.toml").write_text(
            f"{tiny_settings}validation.every_steps = 2\ntraining.max_steps = 2\n", encoding="utf-8"
        )
    return copy


@pytest.fixture(scope="module")
def finished(recipe: Recipe, copied: Path) -> Path:
    """Run the recipe, and return the folder of its stages."""
    done = recipe(copied, "-p", "0.6", "tok/tiny", "de", NMT_DATA=copied.parents[1], PREPROCESS=SMALL)
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith(results.table(results.recorded(copied / "run" / "tok-tiny-en-de-1")))
    return copied / "run" / "tok-tiny-en-de-1"


@pytest.fixture
def result() -> dict[str, Any]:
    """Return a result as a stage records it."""
    return {
        **{"settings": "tok/tiny", "language": "de", "updates": 8000, "seed": 1, "hours": 1.5},
        **{"valid": 39.125, "tests": {"test_2016_flickr": 40.0}, "averaged": [10, 20], "length_penalty": 0.6},
        **{"device": "A GPU", "devices": 1, "date": "2030-01-01", "signature": "tok:none|version:2"},
    }


def test_the_recipe_trains_translates_and_scores(finished: Path) -> None:
    stage = finished / "2"
    result = json.loads((stage / "result.json").read_bytes())
    assert result["updates"] == 2 and result["length_penalty"] == 0.6
    searches = {path.name for path in stage.glob("valid-*")}
    assert searches == {f"valid-{beam}-0.6.de" for beam in (5, 12, 24)}
    assert (stage / f"valid-{result['beam']}-0.6.de").exists()
    assert len((stage / "test_2016_flickr.de").read_text(encoding="utf-8").splitlines()) == 4
    assert list(result["tests"]) == ["test_2016_flickr"]
    assert "tok:none" in result["signature"]
    assert result["averaged"][-1] == 2
    assert result["config"]["model"]["width"] == 8 and result["config"]["loss"]["smoothing"] == 0.1


def test_a_stage_has_the_search_settings_that_it_chose(finished: Path, nmt_script: Path) -> None:
    stage = finished / "2"
    result = json.loads((stage / "result.json").read_bytes())
    settings = tomllib.loads((stage / "translate.toml").read_text(encoding="utf-8"))
    assert settings == {"search": {"beam": result["beam"], "length_penalty": 0.6}}
    text = finished.parents[3] / "multi30k" / "tok" / "valid.lc.norm.tok.en.gz"
    command = [nmt_script, "translate", stage / "model", "--config", stage / "translate.toml"]
    done = subprocess.run([*map(str, command), "--input", str(text)], capture_output=True, check=True)
    assert done.stdout == (stage / f"valid-{result['beam']}-0.6.de").read_bytes()


def test_each_system_is_scored_and_compared_with_the_previous_one(
    recipe: Recipe, copied: Path, finished: Path
) -> None:
    stages = [finished / "2", finished / "2"]  # an ensemble of the same model twice has the same scores
    done = recipe(copied, "-p", "0.6", "de", *stages, NMT_DATA=copied.parents[1], SCRIPT="steps.sh")
    assert done.returncode == 0, done.stderr
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in done.stdout.splitlines()[-5:]]
    name = "tok/tiny-en-de-1 after 2"
    single, ensemble = f"{name}, chosen", "all 2 chosen ones together"
    agreed = "the same, minimum Bayes risk"
    assert [row[0] for row in rows] == [f"{name}, last checkpoint", single, single, ensemble, agreed]
    scores = [(*row[1:3], row[3].partition(" ")[0]) for row in rows]
    assert scores[1] == scores[2] == scores[3]
    assert ["(p " in row[3] for row in rows] == [False, True, True, True, True]


def test_steps_of_a_stage_without_its_last_checkpoint_change_no_file(
    recipe: Recipe, copied: Path, finished: Path, tmp_path: Path
) -> None:
    stage = tmp_path / "tok-tiny-en-de-1" / "1"
    (stage / "model").mkdir(parents=True)
    earlier = tmp_path / "steps" / "earlier.txt"
    earlier.parent.mkdir()
    earlier.touch()
    refused = recipe(copied, "-o", tmp_path, "de", stage, NMT_DATA=copied.parents[1], SCRIPT="steps.sh")
    assert refused.returncode == 1 and "there is no" in refused.stderr and earlier.exists()


def test_tokenised_text_is_used_unchanged(finished: Path) -> None:
    dataset = finished.parent / "tok-en-de"
    source = (dataset / "train.source.txt").read_text(encoding="utf-8")
    text = finished.parents[3] / "multi30k" / "tok" / "train.lc.norm.tok.en"
    assert source == text.read_text(encoding="utf-8")
    manifest = json.loads((dataset / "dataset.json").read_bytes())
    assert manifest["settings"]["tokenizer"]["kind"] == "bpe" and manifest["tokenizer"]["joint"]


def test_the_same_command_again_changes_no_file(recipe: Recipe, copied: Path, finished: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in finished.rglob("*")}
    again = recipe(copied, "-p", "0.6", "tok/tiny", "de", 2, NMT_DATA=copied.parents[1], PREPROCESS=SMALL)
    assert again.returncode == 0 and "| tok/tiny | de | 2 |" in again.stdout
    assert {path: path.stat().st_mtime_ns for path in finished.rglob("*")} == before


def test_a_stage_with_another_number_of_updates_is_not_recorded(finished: Path) -> None:
    with pytest.raises(SystemExit, match=r"has 2 updates, so it cannot be scored as 1\."):
        results.record(finished / "1", "tok/tiny", "de", 5, 0.6)


def test_several_seeds_are_one_row_with_mean_and_deviation(result: dict[str, Any]) -> None:
    other = {**result, "seed": 2, "tests": {"test_2016_flickr": 41.0}, "averaged": [20], "beam": 12}
    rows = results.table([result, other, {**result, "updates": 9000}]).splitlines()[2:]
    assert len(rows) == 2
    assert rows[0] == (
        "| tok/tiny | de | 8,000 | 1, 2 | 39.12 ± 0.00 | 40.50 ± 0.71 |  |  | "
        "average of 2, beam 5, penalty 0.6; step 20, beam 12, penalty 0.6 "
        "| 1.50 ± 0.00 | 1 x A GPU | 2030-01-01 |"
    )
    assert "| 1 | 39.12 | 40.00 |" in rows[1]


def test_the_summary_has_the_test_score_of_the_best_model_on_validation(result: dict[str, Any]) -> None:
    other_seed = {**result, "seed": 2, "tests": {"test_2016_flickr": 38.0}}
    worse = {**result, "settings": "tok/other", "valid": 39.0, "tests": {"test_2016_flickr": 41.0}}
    french = {**result, "language": "fr", "tests": {"test_2016_flickr": 54.0}}
    raw = {**result, "settings": "raw/tiny", "tests": {"test_2016_flickr": 36.0}}
    summary = results.score([result, other_seed, worse, french, raw])
    origin = "1.5 h of 1 x A GPU; 2030-01-01"
    assert summary == (
        f"`raw/tiny`: 36.00, raw, en-de (seed 1; {origin})<br>"
        f"`tok/tiny`: 39.00 ± 1.41, tokenised, en-de (seeds 1, 2; {origin.replace('1.5', '3.0')})<br>"
        f"`tok/tiny`: 54.00, tokenised, en-fr (seed 1; {origin})"
    )


@pytest.mark.parametrize(
    ("text", "stages"), [("[training]\nmax_steps = 5_000\n", [5000]), ("", [1000, 2000, 4000, 8000])]
)
def test_settings_with_a_maximum_of_steps_are_scored_only_at_the_end(
    tmp_path: Path, text: str, stages: list[int]
) -> None:
    (settings := tmp_path / "tiny.toml").write_text(text, encoding="utf-8")
    assert results.stages(settings) == stages
