"""The examples of the documentation print what the pages show, with the model of `nmt demo`."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.examples import PAGES, Example, examples, exchanges, like, prepare, respond, run, server
from tests.end_to_end.pages import ROOT

WITH_EXAMPLES = [page for page in PAGES if examples(page)]
VARYING = r'"(id|glossary_id|created|creation_time|character_count)": ("[^"]*"|\d+)'
"""Fields of a response that differ each time."""


@pytest.fixture(scope="module")
def address(nmt_script: Path) -> Iterator[str]:
    with server(str(nmt_script)) as address:
        yield address


@pytest.mark.parametrize("page", WITH_EXAMPLES, ids=lambda page: page.stem)
def test_the_examples_of_a_page_print_what_it_shows(
    page: Path, address: str, nmt_script: Path, tmp_path: Path
) -> None:
    prepare(tmp_path)
    for example in examples(page):
        printed = run(example, tmp_path, str(nmt_script), address)
        assert like(printed, example.output), f"{example.code}\nprinted:\n{printed}\nshown:\n{example.output}"


def test_most_pages_that_use_a_model_show_outputs() -> None:
    assert sum(len(examples(page)) for page in WITH_EXAMPLES) >= 14


@pytest.mark.parametrize(("path", "fields", "shown"), [row[:3] for row in exchanges()])
def test_the_server_answers_as_the_reference_shows(path: str, fields: Any, shown: str, address: str) -> None:
    texts = (json.dumps(json.loads(text)) for text in (respond(path, fields, address), shown))
    given, expected = (re.sub(VARYING, r"\1", text) for text in texts)
    assert like(given, expected), given


def test_the_cells_of_the_notebook_print_what_it_shows(nmt_script: Path, tmp_path: Path) -> None:
    notebook = json.loads((ROOT / "recipes/quickstart/notebook.ipynb").read_text(encoding="utf-8"))
    shown = [cell for cell in notebook["cells"] if cell.get("outputs")]
    code = "\n".join("".join(cell["source"]) for cell in shown)
    output = "".join("".join(cell["outputs"][0]["text"]) for cell in shown)
    example = Example(ROOT, "python", code, output, 0)
    printed = run(example, prepare(tmp_path), str(nmt_script), "127.0.0.1:0")
    assert len(shown) >= 3
    assert like(printed, output), printed


@pytest.mark.parametrize(
    ("printed", "same"),
    [("Ein Hund. -0.38", True), ("Ein Hund. -0.37", True), ("Ein Hund. -0.5", False), ("Ein. -0.38", False)],
)
def test_numbers_may_differ_a_little_and_words_may_not(printed: str, same: bool) -> None:
    assert like(printed, "Ein Hund. -0.38") == same
