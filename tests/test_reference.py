"""Compare the pages of the reference with the code that they describe."""

import sys
from pathlib import Path

import pytest

# Recipes are no part of the installed package.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from recipes.docs.reference import PAGES, REFERENCE


@pytest.mark.parametrize("name", PAGES)
def test_a_generated_page_is_up_to_date(name: str) -> None:
    written = (REFERENCE / f"{name}.md").read_text(encoding="utf-8")
    assert written == PAGES[name](), "write the page again with: python -m recipes.docs.reference"
