"""`filter-report.html`: counts, histograms, samples and what other thresholds would keep, in one file."""

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

Pairs = Sequence[tuple[str, str]]
NASTY = "</script><img src=x onerror=document.title='ran'>"
PAIRS = [("a b c d", "x"), ("a b", "x y"), (NASTY, NASTY), ("a", ""), ("e f g", "x y z"), ("a b", "x y")]
WANTED = ("filter.max_ratio=3.0", "filter.identical=true", "filter.duplicates=true")


@pytest.fixture
def page(tmp_path: Path, make: Callable[..., object], write_pairs: Callable[[Path, Pairs], str]) -> Path:
    make(tmp_path / "out", [write_pairs(tmp_path / name, PAIRS) for name in ("one", "two")], *WANTED)
    return tmp_path / "out" / "filter-report.html"


def test_its_data_are_those_of_the_report_for_programs(page: Path) -> None:
    content = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page.read_text(), re.S)
    told: dict[str, Any] = json.loads(content[0])
    shapes = [corpus.pop("shapes") for corpus in told["corpora"]]
    assert told["corpora"] == json.loads(page.with_suffix(".json").read_text())
    # Duplicates are found only later: these are the lengths of what was cleaned.
    assert shapes[0]["words"] == {"kept": [0, 0, 2, 1], "dropped": [0, 1, 0, 1, 1]}
    assert shapes[0] == shapes[1]
    assert told["settings"] == {"max_words": 250, "max_ratio": 3.0, "min_score": 0.0}


def test_it_is_the_same_wherever_and_whenever_it_is_made(
    page: Path, tmp_path: Path, make: Callable[..., object]
) -> None:
    make(tmp_path / "again", [str(tmp_path / name) for name in ("one", "two")], *WANTED)
    assert (tmp_path / "again" / page.name).read_bytes() == page.read_bytes()


@pytest.mark.slow
def test_a_browser_shows_all_of_it_and_runs_none_of_the_texts(
    page: Path, shown_by_browser: Callable[[Path], str]
) -> None:
    shown = shown_by_browser(page)
    assert "<title>Filter report en–de · nmt preprocess</title>" in shown
    body = shown.partition("<body>")[2].partition('<script type="application/json"')[0]
    cells = re.findall(r"<td>(.*?)</td>", body)
    # Read, kept, and by reason: an empty side, the ratio, the same text, and what occurred before.
    assert cells[:7] == ["one", "6", "2", "1", "1", "1", "1"]
    assert cells[7:14] == ["two", "6", "0", "1", "1", "1", "3"]
    assert cells[14:21] == ["all", "12", "2", "2", "2", "2", "4"]
    assert "filter.max_ratio = 3.00 would keep 10 of 12, 83.3 %" in body
    assert "identical sides: 2" in body
    assert "&lt;/script&gt;&lt;img" in body
    assert "<img" not in body
