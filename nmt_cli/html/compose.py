"""Compose an HTML page and its data as one file that needs no network."""

import base64
import hashlib
import json
from collections.abc import Sequence
from importlib.resources import files
from importlib.resources.abc import Traversable
from string import Template
from typing import Literal

ESCAPES = {ord(mark): f"\\u{ord(mark):04x}" for mark in "<>&"}
"""Escapes for JSON in a script element, so that no text can end the element."""

POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"
"""The default Content-Security-Policy: the page may load nothing but its own content."""


def compose(
    title: str,
    parts: Traversable,
    scripts: Sequence[str],
    data: object,
    policy: str = POLICY,
    layout: Literal["report", "tool"] = "report",
) -> str:
    """Return an HTML page made of `body.html`, `style.css` and `scripts` in the folder `parts`. The styles of
    `nmt_cli.html` and `layout` come first. The scripts get `data` from `pageData()`. Replace "{style}" and
    "{script}" in `policy`, a Content-Security-Policy, by hashes, so that nothing else can run."""
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
    """Return the shared script `elements.js` and the `scripts` in the folder `parts` as one text."""
    return _joined(files("nmt_cli.html") / "elements.js", *(parts / name for name in scripts))


def escaped(data: object) -> str:
    """Return `data` as JSON that is safe in a script element. Raise `ValueError` for NaN and infinity."""
    return json.dumps(data, allow_nan=False, separators=(",", ":")).translate(ESCAPES)


def _hash(content: str) -> str:
    """Return the SHA-256 of `content`, with a line break before and after, for a Content-Security-Policy."""
    return "'sha256-" + base64.b64encode(hashlib.sha256(f"\n{content}\n".encode()).digest()).decode() + "'"


def _joined(*parts: Traversable) -> str:
    return "\n".join(part.read_text("utf-8").strip() for part in parts)
