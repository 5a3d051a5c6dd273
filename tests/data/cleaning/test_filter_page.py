"""`filter-report.html` shows counts, histograms, samples and other thresholds in one file."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.data.corpora import Make, WritePairs

NASTY = "</script><img src=x onerror=document.title='ran'>"
PAIRS = [("a b c d", "x"), ("a b", "x y"), (NASTY, NASTY), ("a", ""), ("e f g", "x y z"), ("a b", "x y")]
SETTINGS = ("filter.max_ratio=3.0", "filter.identical=true", "filter.duplicates=true")


@pytest.fixture
def page(tmp_path: Path, make: Make, write_pairs: WritePairs) -> Path:
    make(tmp_path / "out", [write_pairs(tmp_path / name, PAIRS) for name in ("one", "two")], *SETTINGS)
    return tmp_path / "out" / "filter-report.html"


def test_the_page_has_the_data_of_the_json_report(page: Path) -> None:
    content = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page.read_text(), re.S)
    data: dict[str, Any] = json.loads(content[0])
    shapes = [corpus.pop("shapes") for corpus in data["corpora"]]
    assert data["corpora"] == json.loads(page.with_suffix(".json").read_text())
    # Duplicates are found after cleaning, so these lengths include them.
    assert shapes[0]["words"] == {"kept": [0, 0, 2, 1], "dropped": [0, 1, 0, 1, 1]}
    assert shapes[0] == shapes[1]
    assert data["settings"] == {"max_words": 250, "max_ratio": 3.0, "min_score": 0.0}


def test_the_page_does_not_depend_on_time_and_folder(page: Path, tmp_path: Path, make: Make) -> None:
    make(tmp_path / "again", [str(tmp_path / name) for name in ("one", "two")], *SETTINGS)
    assert (tmp_path / "again" / page.name).read_bytes() == page.read_bytes()


@pytest.mark.slow
def test_a_browser_shows_everything_and_runs_no_text(
    page: Path, shown_by_browser: Callable[[Path], str]
) -> None:
    shown = shown_by_browser(page)
    assert "<title>Filter report en–de · nmt preprocess</title>" in shown
    body = shown.partition("<body>")[2].partition('<script type="application/json"')[0]
    cells = re.findall(r"<td>(.*?)</td>", body)
    # Read, kept, and the counts of empty side, word ratio, identical sides and duplicate.
    assert cells[:7] == ["one", "6", "2", "1", "1", "1", "1"]
    assert cells[7:14] == ["two", "6", "0", "1", "1", "1", "3"]
    assert cells[14:21] == ["all", "12", "2", "2", "2", "2", "4"]
    assert "filter.max_ratio = 3.00 would keep 10 of 12, 83.3 %" in body
    assert "identical sides: 2" in body
    sides = r'<p lang="(..)" dir="auto">(.*?)</p>'
    samples = re.findall(sides, body.partition("empty side: 2")[2])
    assert samples[:2] == [("en", "a"), ("de", '<span class="soft">(empty)</span>')]
    assert "&lt;/script&gt;&lt;img" in body
    assert "<img" not in body
