"""The recipe for Table 3: its rows, their parameters, and the sweep on a few made-up pairs."""

import json
import sys
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest
import torch

from nmt_cli.model.config import ModelConfig
from nmt_cli.model.cost import parameters
from nmt_cli.model.transformer import Transformer
from nmt_cli.text.vocabulary import Vocabulary

# Recipes are no part of the installed package.
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from recipes.table3 import results

Recipe = Callable[..., CompletedProcess[str]]

SMALL = "--vocab-size 200"
VOCABULARY, IMPLIED = 37_000, 41_000
PRESETS = Path(__file__).resolve().parents[2] / "nmt_cli" / "presets"
TINY = """
batch.tokens = 300
schedule.warmup = 2
validation.every_steps = 1000
validation.sentences = 1
search.max_length = 5
"""


def parameters_of(row: str, vocabulary: int, factor: int = 1) -> int:
    """Parameters of a row at the paper's widths over `factor`, counted on a model that has no memory."""
    told = results.settings(row, factor)
    model = {name.removeprefix("model."): value for name, value in told.items() if name.startswith("model.")}
    with torch.device("meta"):
        known = Vocabulary(("",) * vocabulary, end=0, start=0, unknown=1)
        return parameters(Transformer(ModelConfig(**model), known, known, joint=True))


@pytest.fixture(scope="module")
def copied(recipe_copy: Callable[[str], Path], toy_text: Callable[..., Path]) -> Path:
    """A copy of the recipe beside toy text, which trains two updates of each row."""
    copy = recipe_copy("table3")
    (copy / "multi30k.toml").write_text(TINY, encoding="utf-8")
    toy_text(copy.parents[1] / "multi30k", train=300, valid=4)
    return copy


@pytest.fixture(scope="module")
def finished(recipe: Recipe, copied: Path) -> Path:
    """Where the sweep has left the one row that it was given."""
    done = recipe(
        copied, "-f", 16, "-n", 2, "multi30k", "keys-32", NMT_DATA=copied.parents[1], PREPROCESS=SMALL
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == results.table(results.recorded(copied / "run" / "multi30k-16"))
    return copied / "run" / "multi30k-16" / "keys-32-1"


def result(row: str, seed: int = 1, perplexity: float = 5.0, bleu: float = 25.0) -> dict[str, Any]:
    """What a row's run may have recorded."""
    return {
        **{"corpus": "multi30k", "factor": 8, "updates": 900, "row": row, "seed": seed},
        **{"parameters": 1000 + len(row), "perplexity": perplexity, "bleu": bleu, "hours": 0.5},
        **{"device": "A GPU", "devices": 1, "date": "2030-01-01"},
        "config": {section: {} for section in results.DECISIVE} | {"model": {"norm": "pre", "heads": 8}},
    }


def test_one_command_trains_translates_and_scores_the_rows_it_is_given(finished: Path) -> None:
    assert [path.name for path in finished.parent.iterdir()] == ["keys-32-1"]
    row = json.loads((finished / "2" / "result.json").read_bytes())
    assert (row["row"], row["factor"], row["updates"], row["seed"]) == ("keys-32", 16, 2, 1)
    assert row["config"]["model"]["width"] == 32 and row["config"]["model"]["key_width"] == 2
    assert len((finished / "2" / "valid.de").read_text(encoding="utf-8").splitlines()) == 4
    assert 1 < row["perplexity"] < 400 and "tok:13a" in row["signature"]
    assert row["parameters"] == parameters_of("base", 200, factor=16) - 18 * 2 * 32 * 8 * 2


def test_a_row_that_is_done_is_passed_over_and_more_updates_go_on_from_it(
    recipe: Recipe, copied: Path, finished: Path
) -> None:
    before = {path: path.stat().st_mtime_ns for path in finished.rglob("*")}
    again = recipe(
        copied, "-f", 16, "-n", 2, "multi30k", "keys-32", NMT_DATA=copied.parents[1], PREPROCESS=SMALL
    )
    assert again.returncode == 0 and "| B: d_k = 32 |" in again.stdout
    assert {path: path.stat().st_mtime_ns for path in finished.rglob("*")} == before
    longer = recipe(
        copied, "-f", 16, "-n", 3, "multi30k", "keys-32", NMT_DATA=copied.parents[1], PREPROCESS=SMALL
    )
    assert (
        longer.returncode == 0 and "2 updates a row" in longer.stdout and "3 updates a row" in longer.stdout
    )
    lines = (finished / "training" / "log.jsonl").read_text(encoding="utf-8").splitlines()
    assert [line["step"] for line in map(json.loads, lines) if "learning_rate" in line] == [1, 2, 3]
    assert json.loads((finished / "3" / "result.json").read_bytes())["updates"] == 3
    with pytest.raises(SystemExit, match=r"has 3 updates, so it cannot be scored as 2\."):
        results.record(finished / "2", "multi30k", "keys-32", 16)


@pytest.mark.parametrize("options", [(), ("-d", "text", "wmt15"), ("-x", "multi30k")], ids=str)
def test_a_wrong_command_is_answered_with_the_right_one(
    recipe: Recipe, copied: Path, options: tuple[str, ...]
) -> None:
    refused = recipe(copied, *options, NMT_DATA=copied.parents[1])
    assert refused.returncode == 2
    assert "CORPUS [ROW ...]" in refused.stderr or "illegal option" in refused.stderr


def test_a_row_that_is_not_there_is_told_before_any_work(
    recipe: Recipe, copied: Path, tmp_path: Path
) -> None:
    refused = recipe(
        copied, "-o", tmp_path / "out", "multi30k", "base", "heads-3", NMT_DATA=copied.parents[1]
    )
    assert refused.returncode == 1
    assert refused.stderr.startswith("Error: heads-3 is not a row. The rows are base, heads-1,")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("row", "factor", "told"),
    [
        ("heads-3", 8, "heads-3 is not a row. The rows are base, heads-1,"),
        ("base", 3, "3 does not divide model.width 512, model.feed_forward 2048."),
        ("keys-16", 32, "32 does not divide model.key_width 16."),
    ],
)
def test_a_row_that_can_not_be_is_refused(row: str, factor: int, told: str) -> None:
    with pytest.raises(SystemExit, match=told):
        results.settings(row, factor)


@pytest.mark.parametrize("row", results.ROWS)
def test_a_row_differs_from_base_in_what_its_table_says_with_all_widths_scaled(row: str) -> None:
    base, told, written = results.settings("base", 8), results.settings(row, 8), results.ROWS[row]["set"]
    changed = {name: value for name, value in told.items() if base.get(name) != value}
    wide = {"model.width", "model.feed_forward", "model.key_width", "model.value_width"}
    assert changed == {name: value / 8 if name in wide else value for name, value in written.items()}
    assert base == {"model.width": 64, "model.feed_forward": 256}


def test_base_is_the_preset_and_big_is_the_other_one() -> None:
    base, big = (
        tomllib.loads((PRESETS / f"vaswani2017-{size}.toml").read_text(encoding="utf-8"))["model"]
        for size in ("base", "big")
    )
    for row, written in (("base", base), ("big", big)):
        told = {name.removeprefix("model."): value for name, value in results.settings(row, factor=1).items()}
        assert ModelConfig(**base | told) == ModelConfig(**written)


@pytest.mark.parametrize(
    "row", [row for row in results.ROWS if "millions" in results.ROWS[row]["paper"] and row != "big"]
)
def test_the_differences_in_parameters_are_those_of_the_paper(row: str) -> None:
    """The paper's are of rounded millions, and of a vocabulary that all its rows but big imply."""
    difference = (parameters_of(row, IMPLIED) - parameters_of("base", IMPLIED)) / 1e6
    paper = results.ROWS[row]["paper"]["millions"] - results.ROWS["base"]["paper"]["millions"]
    assert abs(difference - paper) < 1


def test_the_parameters_that_are_kept_are_those_of_the_models() -> None:
    lines = (results.HERE / "parameters.txt").read_text(encoding="utf-8").splitlines()
    assert dict(line.split() for line in lines) == {
        row: f"{parameters_of(row, VOCABULARY):,}" for row in results.ROWS
    }


@pytest.mark.parametrize(
    ("expected", "difference", "noise", "verdict"),
    [
        ("higher", 0.5, 0.4, "holds"),
        ("higher", 0.4, 0.4, "undecided"),
        ("higher", -0.5, 0.4, "contradicted"),
        ("lower", -0.5, 0.4, "holds"),
        ("lower", 0.5, 0.4, "contradicted"),
        ("equal", -0.4, 0.4, "holds, within the noise"),
        ("equal", 0.5, 0.4, "contradicted"),
        ("lower", -9.0, None, "undecided"),
        ("equal", 0.0, None, "undecided"),
    ],
)
def test_a_finding_holds_or_not_beyond_the_noise_alone(
    expected: str, difference: float, noise: float | None, verdict: str
) -> None:
    assert results.verdict(expected, difference, noise) == verdict


def test_the_noise_is_twice_the_range_of_the_seeds_of_base() -> None:
    base = [result("base", 1, 5.0, 25.0), result("base", 2, 5.2, 26.0), result("base", 3, 5.1, 25.5)]
    rows: Mapping[str, list[dict[str, Any]]] = {row: [] for row in results.ROWS}
    found = list(results.verdicts({**rows, "base": base, "heads-1": [result("heads-1", 1, 5.6, 23.6)]}))
    assert found == [
        ("a single head is worse (A: h = 1)", "perplexity", "higher", "+0.50", "0.40", "holds"),
        ("a single head is worse (A: h = 1)", "BLEU", "lower", "-1.90", "2.00", "undecided"),
    ]


def test_the_table_has_our_numbers_beside_the_papers_and_differences_from_base() -> None:
    found = [result("base", 1), result("base", 2, 5.5, 26.0), result("keys-16", 1, 6.25, 24.0)]
    text = results.table(sorted(found, key=results._key))
    assert text.startswith(
        "multi30k, widths divided by 8, 900 updates a row; 1 x A GPU, 1.5 hours in all, 2030-01-01:\n"
    )
    assert (
        "| base | 1, 2 | 1,004 | +0 | +0.0 M | +0 M | 5.25 (5.00 to 5.50) | 4.92 | 25.50 (25.00 to 26.00) "
        "| 25.8 |\n| B: d_k = 16 | 1 | 1,007 | +3 | -7.1 M | -7 M | 6.25 | 5.16 | 24.00 | 25.1 |\n"
    ) in text


def test_rows_that_were_trained_with_other_settings_are_no_table() -> None:
    other = result("heads-1")
    other["config"]["model"] = {"norm": "pre", "heads": 1}
    assert "| A: h = 1 |" in results.table([result("base"), other])
    other["config"]["model"] = {"norm": "post", "heads": 1}
    with pytest.raises(
        SystemExit, match=r"were trained with different settings \(model\.norm\), so they do not belong"
    ):
        results.table([result("base"), other])


def test_a_setting_that_a_result_is_too_old_to_name_was_at_its_default() -> None:
    later = result("heads-1")
    later["config"]["model"] |= {"heads": 1, "init": "xavier"}
    assert "| A: h = 1 |" in results.table([result("base"), later])
    later["config"]["model"]["init"] = "smaller"
    with pytest.raises(SystemExit, match=r"different settings \(model\.init\)"):
        results.table([result("base"), later])


def test_sweeps_of_other_sizes_are_tables_of_their_own() -> None:
    text = results.table([{**result("base"), "factor": 4}, result("base")])
    assert text.count("| row | seeds |") == 2
