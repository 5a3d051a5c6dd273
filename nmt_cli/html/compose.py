"""Composition of an HTML page as one file that needs no network.

A page is made of its own parts (`body.html`, `style.css` and scripts), of styles and scripts that all pages
share, and of data in JSON.
"""

import base64
import hashlib
import json
from collections.abc import Sequence
from importlib.resources import files
from importlib.resources.abc import Traversable
from string import Template
from typing import Literal

ESCAPES = {ord(mark): f"\\u{ord(mark):04x}" for mark in "<>&"}
"""Escapes for JSON in a script element, so that no text in it can end the element."""

POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"
"""The default Content-Security-Policy. The page may load nothing but its own content."""


def compose(
    title: str,
    parts: Traversable,
    scripts: Sequence[str],
    data: object,
    policy: str = POLICY,
    layout: Literal["report", "tool"] = "report",
) -> str:
    """Return an HTML page in one text.

    - `title`: the title, as HTML.
    - `parts`: the folder with the `body.html`, `style.css` and scripts of the page.
    - `scripts`: the names of the scripts. A shared script comes first.
    - `data`: the data in types of JSON, which the scripts get from `pageData()`.
    - `policy`: the Content-Security-Policy. "{style}" and "{script}" in it become hashes, so that nothing
      else can run.
    - `layout`: the shared style of the page, for a report or a tool.
    """
    kit = files("nmt_cli.html")
    style = _joined(kit / "base.css", kit / f"{layout}.css", parts / "style.css")
    code = script(parts, scripts)
    values = {
        "title": title,
        "policy": policy.format(style=_hash(style), script=_hash(code)),
        "style": style,
        "body": _joined(parts / "body.html"),
        "data": escaped(data),
        "script": code,
    }
    return Template(_joined(kit / "page.html")).substitute(values)


def script(parts: Traversable, scripts: Sequence[str]) -> str:
    """Return the shared script and the `scripts` in the folder `parts` as one text."""
    return _joined(files("nmt_cli.html") / "elements.js", *(parts / name for name in scripts))


def escaped(data: object) -> str:
    """Return `data` as JSON that is safe in a script element. Raise `ValueError` for NaN and infinity, which
    JSON does not have."""
    # Browsers refuse NaN, which Python writes by default.
    return json.dumps(data, allow_nan=False, separators=(",", ":")).translate(ESCAPES)


def _hash(content: str) -> str:
    """Return the SHA-256 of an element's content for a Content-Security-Policy."""
    # The template has a line break before and after the content, and browsers include both in the hash.
    return "'sha256-" + base64.b64encode(hashlib.sha256(f"\n{content}\n".encode()).digest()).decode() + "'"


def _joined(*parts: Traversable) -> str:
    return "\n".join(part.read_text("utf-8").strip() for part in parts)
