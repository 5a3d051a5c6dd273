"""The functions that describe, store and show the results of recipes."""

import importlib
import json
from pathlib import Path
from typing import Any

import pytest

from recipes import results
from recipes.benchmarks import overview

RECIPES = Path(results.__file__).parent
README = "before\n<!-- written by results.py -->\nold\n<!-- end -->\nafter\n"
ALL = "| a | <!-- a -->old<!-- end --> | 1 |\n| b | <!-- b -->other<!-- end --> | 2 |\n"


def test_the_first_system_with_the_highest_bleu_is_best(tmp_path: Path) -> None:
    scores = {"valid-0.de": 30.5, "valid-0.6.de": 31.25, "valid-1.de": 31.25}
    systems = [{"system": name, "scores": [{"score": score}]} for name, score in scores.items()]
    (tmp_path / "valid.json").write_text(json.dumps({"systems": systems}))
    assert results.best(tmp_path / "valid.json") == "valid-0.6.de"


def test_new_results_replace_old_ones_in_both_readmes(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "README.md").write_text(README)
    (tmp_path / "README.md").write_text(ALL)
    for updates, bleu in ((8000, 40.0), (4000, 38.0), (8000, 41.5)):
        results.keep(
            tmp_path / "a",
            [{"updates": updates, "bleu": bleu}],
            key=lambda result: (result["updates"],),
            table=lambda rows: "".join(f"{result['updates']}: {result['bleu']}\n" for result in rows),
            score=lambda rows: str(rows[-1]["bleu"]),
        )
    assert (tmp_path / "a" / "README.md").read_text() == README.replace("old", "4000: 38.0\n8000: 41.5")
    assert (tmp_path / "README.md").read_text() == ALL.replace("old", "41.5")
    assert [result["bleu"] for result in results.stored(tmp_path / "a")] == [38.0, 41.5]


def test_a_folder_without_results_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"no result\.json was found\. Name the folder of a finished run"):
        results.read([tmp_path / "result.json"])


@pytest.mark.parametrize("name", ["back-translation", "distillation", "multi30k", "parsing", "table3"])
def test_the_readmes_show_the_stored_results(name: str) -> None:
    recipe: Any = importlib.import_module(f"recipes.{name}.results")
    stored = results.stored(RECIPES / name)
    rows, score = (
        (recipe.table(stored), recipe.score(stored)) if stored else ("Not run yet.\n", "not yet run")
    )
    text = (RECIPES / name / "README.md").read_text(encoding="utf-8")
    assert f"<!-- written by results.py -->\n{rows}<!-- end -->" in text
    overview = (RECIPES / "README.md").read_text(encoding="utf-8")
    assert f"| <!-- {name} -->{score}<!-- end --> |" in overview


def test_the_bars_are_those_of_the_tables() -> None:
    folder = RECIPES / "benchmarks"
    drawn = overview.overview((folder / "results.md").read_text(encoding="utf-8"))
    assert (folder / "overview.svg").read_text(encoding="utf-8") == drawn
    assert drawn.count("<rect") == 1 + 6 + 6 + 3
