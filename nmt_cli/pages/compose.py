"""Puts a page together: one file that shows its data and needs nothing else, no network either."""

import json
from collections.abc import Sequence
from importlib.resources import files
from importlib.resources.abc import Traversable
from string import Template

OPENERS = {ord(mark): f"\\u{ord(mark):04x}" for mark in "<>&"}
"""Spelt so in JSON, no text can end the element that holds it."""


def compose(title: str, parts: Traversable, scripts: Sequence[str], data: object) -> str:
    """The page of `body.html`, `style.css` and `scripts` in the folder `parts`, and the kit's own.

    The scripts see each other's names, and `data` by `pageData()`.
    """
    kit = files("nmt_cli.pages")
    fillings = {
        "title": title,
        "style": _joined(kit / "base.css", parts / "style.css"),
        "body": _joined(parts / "body.html"),
        "data": escaped(data),
        "script": script(parts, scripts),
    }
    return Template(_joined(kit / "page.html")).substitute(fillings)


def script(parts: Traversable, scripts: Sequence[str]) -> str:
    """The kit's own script and those in the folder `parts`, as one."""
    return _joined(files("nmt_cli.pages") / "elements.js", *(parts / name for name in scripts))


def escaped(data: object) -> str:
    """JSON that can stand in a script element, whatever texts are in it; `ValueError` for what JSON lacks."""
    return json.dumps(data, allow_nan=False, separators=(",", ":")).translate(OPENERS)


def _joined(*parts: Traversable) -> str:
    return "\n".join(part.read_text("utf-8").strip() for part in parts)
