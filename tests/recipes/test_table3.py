"""The recipe for Table 3: its rows, their parameters, and a sweep on a few generated pairs."""

import json
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any
from xml.etree import ElementTree

import pytest
import torch

from nmt_cli.config import read
from nmt_cli.model.config import ModelConfig
from nmt_cli.model.cost import parameters
from nmt_cli.model.transformer import Transformer
from nmt_cli.text.vocabulary import Vocabulary
from nmt_cli.training.config import TrainConfig
from recipes.table3 import results
from tests.recipes.conftest import Recipe

VOCABULARY, IMPLIED = 37_000, 41_000
"""Entries of the vocabulary in the paper's text, and as the paper's numbers of parameters imply."""

PRESETS = Path(__file__).resolve().parents[2] / "nmt_cli" / "presets"
TINY = """
batch.tokens = 300
schedule.warmup = 2
validation.every_steps = 1000
validation.sentences = 1
search.max_length = 5
"""


def parameters_of(row: str, vocabulary: int, factor: int = 1) -> int:
    """Return the number of parameters of a row. All widths are divided by `factor`."""
    settings = results.settings(row, factor)
    model = {name[6:]: value for name, value in settings.items() if name.startswith("model.")}
    with torch.device("meta"):
        entries = Vocabulary(("",) * vocabulary, end=0, start=0, unknown=1)
        return parameters(Transformer(ModelConfig(**model), entries, entries, joint=True))


@pytest.fixture(scope="module")
def copied(recipe_copy: Callable[[str], Path], toy_text: Callable[..., Path]) -> Path:
    """Return a copy of the recipe with settings of small batches. A sibling folder has generated text."""
    copy = recipe_copy("table3")
    (copy / "multi30k.toml").write_text(TINY, encoding="utf-8")
    toy_text(copy.parents[1] / "multi30k", train=300, valid=4)
    return copy


@pytest.fixture(scope="module")
def sweep(recipe: Recipe, copied: Path) -> Callable[[int], CompletedProcess[str]]:
    """Return a function that trains the row keys-32 for a number of updates, with widths divided by 16."""

    def run(updates: int) -> CompletedProcess[str]:
        arguments = ("-f", 16, "-n", updates, "multi30k", "keys-32")
        return recipe(copied, *arguments, NMT_DATA=copied.parents[1], PREPROCESS="--vocab-size 200")

    return run


@pytest.fixture(scope="module")
def finished(sweep: Callable[[int], CompletedProcess[str]], copied: Path) -> Path:
    """Train the row for two updates, and return its folder."""
    done = sweep(2)
    assert done.returncode == 0, done.stderr
    assert done.stdout == results.table(results.recorded(copied / "run" / "multi30k-16"))
    return copied / "run" / "multi30k-16" / "keys-32-1"


def result(row: str, seed: int = 1, perplexity: float = 5.0, bleu: float = 25.0) -> dict[str, Any]:
    """Return a result as the run of a row records it."""
    return {
        **{"corpus": "multi30k", "factor": 8, "updates": 900, "row": row, "seed": seed},
        **{"parameters": 1000 + len(row), "perplexity": perplexity, "bleu": bleu, "hours": 0.5},
        **{"device": "A GPU", "devices": 1, "date": "2030-01-01"},
        "config": {section: {} for section in results.DECISIVE} | {"model": {"norm": "pre", "heads": 8}},
    }


def test_the_recipe_trains_translates_and_scores_the_requested_rows(finished: Path) -> None:
    assert [path.name for path in finished.parent.iterdir()] == ["keys-32-1"]
    row = json.loads((finished / "2" / "result.json").read_bytes())
    assert (row["row"], row["factor"], row["updates"], row["seed"]) == ("keys-32", 16, 2, 1)
    assert row["config"]["model"]["width"] == 32 and row["config"]["model"]["key_width"] == 2
    assert len((finished / "2" / "valid.de").read_text(encoding="utf-8").splitlines()) == 4
    # After two updates, the model is hardly better than chance among 200 entries, and four pairs are few.
    assert 1 < row["perplexity"] < 1000 and "tok:13a" in row["signature"]
    assert row["parameters"] == parameters_of("base", 200, factor=16) - 18 * 2 * 32 * 8 * 2


def test_a_finished_row_is_skipped_and_resumes_for_more_updates(
    sweep: Callable[[int], CompletedProcess[str]], finished: Path
) -> None:
    before = {path: path.stat().st_mtime_ns for path in finished.rglob("*")}
    again = sweep(2)
    assert again.returncode == 0 and "| B: d_k = 32 |" in again.stdout
    assert {path: path.stat().st_mtime_ns for path in finished.rglob("*")} == before
    longer = sweep(3)
    assert longer.returncode == 0
    assert "2 updates a row" in longer.stdout and "3 updates a row" in longer.stdout
    lines = (finished / "training" / "log.jsonl").read_text(encoding="utf-8").splitlines()
    assert [line["step"] for line in map(json.loads, lines) if "learning_rate" in line] == [1, 2, 3]
    assert json.loads((finished / "3" / "result.json").read_bytes())["updates"] == 3
    with pytest.raises(SystemExit, match=r"has 3 updates, so it cannot be scored as 2\."):
        results.record(finished / "2", "multi30k", "keys-32", 16)


def test_an_unknown_row_is_refused_before_any_training(recipe: Recipe, copied: Path, tmp_path: Path) -> None:
    refused = recipe(
        copied, "-o", tmp_path / "out", "multi30k", "base", "heads-3", NMT_DATA=copied.parents[1]
    )
    assert refused.returncode == 1
    assert refused.stderr.startswith("Error: heads-3 is not a row. The rows are base, heads-1,")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("row", "factor", "message"),
    [
        ("heads-3", 8, "heads-3 is not a row. The rows are base, heads-1,"),
        ("base", 3, "3 does not divide model.width 512, model.feed_forward 2048."),
        ("keys-16", 32, "32 does not divide model.key_width 16."),
    ],
)
def test_an_unknown_row_or_a_factor_that_does_not_divide_is_refused(
    row: str, factor: int, message: str
) -> None:
    with pytest.raises(SystemExit, match=message):
        results.settings(row, factor)


@pytest.mark.parametrize("row", results.ROWS)
def test_a_row_differs_from_base_only_in_the_listed_settings(row: str) -> None:
    base, settings, listed = results.settings("base", 8), results.settings(row, 8), results.ROWS[row]["set"]
    changed = {name: value for name, value in settings.items() if base.get(name) != value}
    wide = {"model.width", "model.feed_forward", "model.key_width", "model.value_width"}
    assert changed == {name: value / 8 if name in wide else value for name, value in listed.items()}
    assert base == {"model.width": 64, "model.feed_forward": 256}


def test_base_and_big_have_the_settings_of_their_presets() -> None:
    base, big = (
        tomllib.loads((PRESETS / f"vaswani2017-{size}.toml").read_text(encoding="utf-8"))["model"]
        for size in ("base", "big")
    )
    for row, preset in (("base", base), ("big", big)):
        model = {name[6:]: value for name, value in results.settings(row, factor=1).items()}
        assert ModelConfig(**base | model) == ModelConfig(**preset)


@pytest.mark.parametrize(
    "row", [row for row in results.ROWS if "millions" in results.ROWS[row]["paper"] and row != "big"]
)
def test_differences_in_parameters_equal_those_of_the_paper(row: str) -> None:
    """The paper rounds to millions. All of its rows except big imply the same vocabulary."""
    difference = (parameters_of(row, IMPLIED) - parameters_of("base", IMPLIED)) / 1e6
    paper = results.ROWS[row]["paper"]["millions"] - results.ROWS["base"]["paper"]["millions"]
    assert abs(difference - paper) < 1


def test_the_recorded_parameters_equal_those_of_the_models() -> None:
    lines = (results.HERE / "parameters.txt").read_text(encoding="utf-8").splitlines()
    assert dict(line.split() for line in lines) == {
        row: f"{parameters_of(row, VOCABULARY):,}" for row in results.ROWS
    }


@pytest.mark.parametrize(
    ("expected", "difference", "least", "verdict"),
    [
        ("higher", 0.5, 0.4, "confirmed"),
        ("higher", 0.4, 0.4, "undecided"),
        ("higher", -0.5, 0.4, "contradicted"),
        ("lower", -0.5, 0.4, "confirmed"),
        ("lower", 0.5, 0.4, "contradicted"),
        ("equal", -0.4, 0.4, "no difference detected"),
        ("equal", 0.5, 0.4, "contradicted"),
        ("lower", -9.0, None, "undecided"),
        ("equal", 0.0, None, "undecided"),
    ],
)
def test_a_finding_is_decided_only_by_a_difference_that_can_be_detected(
    expected: str, difference: float, least: float | None, verdict: str
) -> None:
    assert results.verdict(expected, difference, least) == verdict


def test_the_difference_that_a_t_test_can_detect_has_the_variance_of_all_seeds() -> None:
    base = [result("base", 1, 5.0, 25.0), result("base", 2, 5.2, 26.0), result("base", 3, 5.1, 25.5)]
    rows: Mapping[str, list[dict[str, Any]]] = {row: [] for row in results.ROWS}
    verdicts = list(results.verdicts({**rows, "base": base, "heads-1": [result("heads-1", 1, 5.6, 23.6)]}))
    assert [results._cells(one) for one in verdicts] == [
        ("a single head is worse (A: h = 1)", "perplexity", "higher", "+0.50", "+0.00 to +1.00", "confirmed"),
        ("a single head is worse (A: h = 1)", "BLEU", "lower", "-1.90", "-4.38 to +0.58", "undecided"),
    ]


def test_the_picture_of_a_sweep_has_a_point_for_each_finding_about_perplexity() -> None:
    rows = [result("base", 1), result("base", 2, 5.5, 26.0), result("keys-16", 1, 6.25, 24.0)]
    (name,), (svg,) = zip(*results.pictures(sorted(rows, key=results._key)).items(), strict=True)
    assert name == "table3-multi30k-8-900.svg"
    assert f"({name})" in results.table(sorted(rows, key=results._key))
    elements = [one.tag.rpartition("}")[2] for one in ElementTree.fromstring(svg).iter()]
    assert elements.count("circle") == 1
    assert "small keys are worse (B: d_k = 16)" in svg


def test_the_rows_that_a_sweep_lacks_are_named() -> None:
    text = results.table([result(row) for row in results.ROWS if row not in ("heads-4", "learned")])
    assert "Not run: A: h = 4; E: learned positions.\n" in text
    assert "Not run" not in results.table([result(row) for row in results.ROWS])


def test_the_table_has_our_numbers_and_those_of_the_paper() -> None:
    rows = [result("base", 1), result("base", 2, 5.5, 26.0), result("keys-16", 1, 6.25, 24.0)]
    text = results.table(sorted(rows, key=results._key))
    assert text.startswith(
        "multi30k, widths divided by 8, 900 updates a row; 1 x A GPU, 1.5 hours in all, 2030-01-01:\n"
    )
    assert (
        "| base | 1, 2 | 1,004 | +0 | +0.0 M | +0 M | 5.25 (5.00 to 5.50) | 4.92 | 25.50 (25.00 to 26.00) "
        "| 25.8 |\n| B: d_k = 16 | 1 | 1,007 | +3 | -7.1 M | -7 M | 6.25 | 5.16 | 24.00 | 25.1 |\n"
    ) in text


def test_rows_with_different_other_settings_are_refused() -> None:
    other = result("heads-1")
    other["config"]["model"] = {"norm": "pre", "heads": 1}
    assert "| A: h = 1 |" in results.table([result("base"), other])
    other["config"]["model"] = {"norm": "post", "heads": 1}
    with pytest.raises(
        SystemExit, match=r"were trained with different settings \(model\.norm\), so they do not belong"
    ):
        results.table([result("base"), other])


def test_a_setting_that_an_old_result_lacks_counts_as_its_default() -> None:
    later = result("heads-1")
    later["config"]["model"] |= {"heads": 1, "init": "xavier"}
    assert "| A: h = 1 |" in results.table([result("base"), later])
    later["config"]["model"]["init"] = "smaller"
    with pytest.raises(SystemExit, match=r"different settings \(model\.init\)"):
        results.table([result("base"), later])


def test_sweeps_of_different_sizes_have_separate_tables() -> None:
    text = results.table([{**result("base"), "factor": 4}, result("base")])
    assert text.count("| row | seeds |") == 2


@pytest.mark.parametrize("row", [row for row in results.ROWS if row != "big"])
def test_the_post_norm_sweep_trains_the_model_of_the_preset_with_divided_widths(row: str) -> None:
    preset = PRESETS / "vaswani2017-base.toml"
    own = [f"{name}={value}" for name, value in results.settings(row, 4).items()]
    model = read(TrainConfig, results.HERE / "multi30k-post.toml", own, preset=preset).model
    of_preset = read(TrainConfig, preset=preset).model
    assert (model.norm, model.init) == (of_preset.norm, of_preset.init) == ("post", "smaller")
    assert model.width * 4 in (256, 512, 1024)
