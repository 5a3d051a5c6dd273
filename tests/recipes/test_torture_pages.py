"""Hostile pages: what a browser makes of them is told from what it makes of harmless ones."""

import shutil
from pathlib import Path

import pytest

from recipes.torture.pages import HOSTILE, MARK, Drawn, check_browser, drawn


def test_an_element_or_attribute_that_got_in_is_seen() -> None:
    harmless = Drawn("<p title='word'>word</p>").kinds
    assert Drawn("<p title='other'>&lt;img src=x&gt;</p>").kinds == harmless
    assert Drawn("<p title='other'><img src=x></p>").kinds - harmless == {"img src"}
    assert Drawn("<p title='' onclick='x'>word</p>").kinds - harmless == {"p onclick title"}


@pytest.mark.slow
def test_a_browser_would_run_what_is_not_kept_from_it(browser: str, tmp_path: Path) -> None:
    check_browser(tmp_path, browser)
    (tmp_path / "kept.html").write_text(f"<!doctype html><p>{HOSTILE[0].replace('<', '&lt;')}</p>")
    assert MARK not in drawn(browser, tmp_path / "kept.html").partition("<p>")[0]
    assert shutil.which(browser)
