"""The check of hostile pages sees additional elements and scripts that ran."""

from pathlib import Path

import pytest

from recipes.torture.pages import HOSTILE, MARK, Elements, check_browser, rendered


def test_an_additional_element_or_attribute_is_seen() -> None:
    harmless = Elements("<p title='word'>word</p>").kinds
    assert Elements("<p title='other'>&lt;img src=x&gt;</p>").kinds == harmless
    assert Elements("<p title='other'><img src=x></p>").kinds - harmless == {"img src"}
    assert Elements("<p title='' onclick='x'>word</p>").kinds - harmless == {"p onclick title"}


@pytest.mark.slow
def test_the_browser_runs_a_hostile_text_unless_it_is_escaped(browser: str, tmp_path: Path) -> None:
    check_browser(tmp_path, browser)
    (tmp_path / "escaped.html").write_text(f"<!doctype html><p>{HOSTILE[0].replace('<', '&lt;')}</p>")
    assert MARK not in rendered(browser, tmp_path / "escaped.html").partition("<p>")[0]
