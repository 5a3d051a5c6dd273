"""The page of the HTTP API: it has all routes, fields and metrics, and its examples work."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

import nmt_cli
from tests.serving.conftest import Client

PACKAGE = Path(nmt_cli.__file__).parent
PAGE = (PACKAGE / "docs" / "reference" / "http.md").read_text(encoding="utf-8")
ROUTES = {part.split("\n")[0]: part for part in PAGE.replace("\n## ", "\n### ").split("\n### ")[1:]}
EXAMPLES = {
    route: [json.loads(block) for block in re.findall(r"```json\n(.*?)```", text, re.DOTALL)]
    for route, text in ROUTES.items()
    if "```json" in text
}


def shape(value: Any) -> Any:
    """Return the names of the fields of a JSON value, and the types of the others. Lists have equal items."""
    if isinstance(value, dict):
        return {name: shape(item) for name, item in value.items()}
    if isinstance(value, list):
        return [shape(value[0])] if value else []
    return (
        "number" if isinstance(value, int | float) and not isinstance(value, bool) else type(value).__name__
    )


def test_the_page_has_every_route(client: Client) -> None:
    app: Any = client.app
    routes = {
        f"{method} {route.path.replace(':path', '')}"
        for route in app._inner.routes
        for method in route.methods - {"HEAD"}
    }
    assert {route for route in ROUTES if " /" in route} == routes


def test_the_page_has_every_field_and_metric() -> None:
    files = [*(PACKAGE / "serving" / "apis").glob("*.py"), *(PACKAGE / "serving").glob("*.py")]
    sources = "".join(file.read_text(encoding="utf-8") for file in files)
    reads = r'(?:fields|Fields\(options\))\.(?:text|texts|whole|yes|chosen|values\.get)\(\s*"(\w+)"'
    names = {*re.findall(reads, sources), *re.findall(r'"(nmt_\w+)"', sources)}
    assert {"q", "glossary_id", "include_usage", "api_key", "nmt_sentences_total"} <= names
    assert [name for name in sorted(names) if not re.search(rf"[`\"]{name}[`\"]", PAGE)] == []


@pytest.mark.parametrize("route", EXAMPLES)
def test_an_example_gets_a_response_of_its_form(client: Client, route: str) -> None:
    method, path = route.split()
    *request, expected = EXAMPLES[route]
    path = path.replace("{model}", "en-de")
    answer = client.post(path, *request) if method == "POST" else client.get(path)
    assert answer.status == (201 if route == "POST /v2/glossaries" else 200)
    assert shape(answer.json()) == shape(expected)
