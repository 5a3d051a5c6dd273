"""A page is complete, and its data cannot escape from its element."""

import json
import re
import string
import subprocess
from collections.abc import Sequence
from fnmatch import fnmatch
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import nmt_cli
from nmt_cli.data.cleaning import filter_report
from nmt_cli.html.compose import compose, escaped, script
from nmt_cli.serving import page
from nmt_cli.training.tracking import html_report
from nmt_cli.translation import attention_page

PACKAGE = Path(nmt_cli.__file__).parent
PAGES = (
    ("translation/page", attention_page.SCRIPTS),
    ("data/cleaning/page", filter_report.SCRIPTS),
    ("training/tracking/page", html_report.SCRIPTS),
    ("serving/page", page.SCRIPTS),
)
"""The folder with the parts of each page, and its scripts."""

OF_BROWSERS = {
    f"{name} is not defined" for name in ("document", "matchMedia", "ResizeObserver", "getComputedStyle")
}
OF_BROWSERS |= {f"{name} is not defined" for name in ("devicePixelRatio", "ImageData", "history", "location")}
"""Names that the linter does not know."""

ASSETS = (".html", ".css", ".js")

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.characters(), max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=9,
)


@given(data=JSON)
def test_data_in_a_page_is_read_back_and_cannot_end_an_element(data: Any) -> None:
    text = escaped(data)
    assert json.loads(text) == data
    assert text.isascii()
    assert not set(text) & set("<>&")


def test_values_without_json_are_refused() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        escaped([float("nan")])


@pytest.fixture
def parts(tmp_path: Path) -> Path:
    (tmp_path / "body.html").write_text("<p>the body</p>\n")
    (tmp_path / "style.css").write_text("p { color: red; }\n")
    (tmp_path / "one.js").write_text("const one = 1;\n")
    (tmp_path / "two.js").write_text("const two = one + `${one}`;\n")
    return tmp_path


def test_a_page_has_the_base_files_before_its_own_parts(parts: Path) -> None:
    page = compose("A title", parts, ["one.js", "two.js"], {"key": "value"})
    kit = files("nmt_cli.html")
    in_order = [
        "default-src 'none'",
        "<title>A title</title>",
        *((kit / name).read_text("utf-8").strip() for name in ("base.css", "report.css")),
        "p { color: red; }",
        "<p>the body</p>",
        '<script type="application/json" id="data">{"key":"value"}</script>',
        (kit / "elements.js").read_text("utf-8").strip(),
        "const one = 1;",
        "const two = one + `${one}`;",
    ]
    offsets = [page.index(part) for part in in_order]
    assert offsets == sorted(offsets)


@pytest.mark.parametrize("text", ["$style", "${body}", "$$", "</script>", "\\u003c", "\u2028", "\ud800"])
def test_data_that_looks_like_a_part_stays_data(parts: Path, text: str) -> None:
    page = compose("A title", parts, [], {text: text})
    (actual,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)
    assert json.loads(actual) == {text: text}


def test_an_unknown_placeholder_raises() -> None:
    shell = (files("nmt_cli.html") / "page.html").read_text("utf-8")
    names = "body data policy script style title"
    assert sorted(string.Template(shell).get_identifiers()) == names.split()


@pytest.mark.parametrize(("folder", "scripts"), PAGES)
def test_the_scripts_of_pages_pass_a_linter(folder: str, scripts: Sequence[str], deno: str) -> None:
    text = script(PACKAGE / folder, scripts)
    command = [deno, "lint", "--no-config", "--rules-include=no-undef,eqeqeq", "--json", "--ext=js", "-"]
    actual = json.loads(subprocess.run(command, input=text, capture_output=True, text=True).stdout)
    expected = [problem["message"] for problem in actual["diagnostics"]] + actual["errors"]
    assert [message for message in expected if message not in OF_BROWSERS] == []


def test_every_part_of_a_page_is_used_and_installed_with_the_package() -> None:
    project = PACKAGE.parent / "pyproject.toml"
    if not project.exists():
        pytest.skip("the package is installed apart from its repository")
    (listed,) = re.findall(r"^nmt_cli = (\[.*?\])", project.read_text("utf-8"), re.M | re.S)
    actual = {str(path.relative_to(PACKAGE)) for path in PACKAGE.rglob("*") if path.suffix in ASSETS}
    own = {f"{folder}/{name}" for folder, names in PAGES for name in ("body.html", "style.css", *names)}
    assert actual == own | {
        f"html/{name}" for name in ("page.html", "base.css", "report.css", "tool.css", "elements.js")
    }
    assert [name for name in actual if not any(fnmatch(name, glob) for glob in json.loads(listed))] == []
