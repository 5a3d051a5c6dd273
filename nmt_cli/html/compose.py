"""Puts a page together: one file that shows its data and needs nothing else, no network either."""

import base64
import hashlib
import json
from collections.abc import Sequence
from importlib.resources import files
from importlib.resources.abc import Traversable
from string import Template
from typing import Literal

OPENERS = {ord(mark): f"\\u{ord(mark):04x}" for mark in "<>&"}
"""Spelt so in JSON, no text can end the element that holds it."""

POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"
"""What a page may load, unless told otherwise: nothing but what is in it."""


def compose(
    title: str,
    parts: Traversable,
    scripts: Sequence[str],
    data: object,
    policy: str = POLICY,
    layout: Literal["report", "tool"] = "report",
) -> str:
    """Return the page of `body.html`, `style.css` and `scripts` in the folder `parts`.

    The shared files of this folder come first, then the style sheet of the `layout`. The scripts share one
    scope, and `pageData()` returns `data` there. `policy` is a Content-Security-Policy. Its "{style}" and
    "{script}" become the hashes of the page's own style and script, so that nothing else can run.
    """
    kit = files("nmt_cli.html")
    style = _joined(kit / "base.css", kit / f"{layout}.css", parts / "style.css")
    run = script(parts, scripts)
    fillings = {
        "title": title,
        "policy": policy.format(style=_hash(style), script=_hash(run)),
        "style": style,
        "body": _joined(parts / "body.html"),
        "data": escaped(data),
        "script": run,
    }
    return Template(_joined(kit / "page.html")).substitute(fillings)


def script(parts: Traversable, scripts: Sequence[str]) -> str:
    """The kit's own script and those in the folder `parts`, as one."""
    return _joined(files("nmt_cli.html") / "elements.js", *(parts / name for name in scripts))


def escaped(data: object) -> str:
    """JSON that can stand in a script element, whatever texts are in it; `ValueError` for what JSON lacks."""
    return json.dumps(data, allow_nan=False, separators=(",", ":")).translate(OPENERS)


def _hash(content: str) -> str:
    """As browsers count it: with the line breaks that stand around it in the page."""
    return "'sha256-" + base64.b64encode(hashlib.sha256(f"\n{content}\n".encode()).digest()).decode() + "'"


def _joined(*parts: Traversable) -> str:
    return "\n".join(part.read_text("utf-8").strip() for part in parts)
