"""WMT test sets: the sgm of newstest2008 to 2020 and the xml since 2021.

Neither is read by an XML parser: the sgm files are not well-formed, and a file from outside must not be able
to make us fetch or expand anything.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from nmt_cli.corpus.files import open_bytes
from nmt_cli.errors import UserError
from nmt_cli.language import without_region

SUFFIXES = (".sgm", ".sgml", ".xml")

DOCUMENT = re.compile(rb"<doc\b([^>]*)>(.*?)</doc\s*>", re.DOTALL | re.IGNORECASE)
SEGMENT = re.compile(rb"<seg\b([^>]*?)(?:/>|>(.*?)</seg\s*>)", re.DOTALL | re.IGNORECASE)
SIDES = {
    "source": re.compile(rb"<src\b([^>]*)>(.*?)</src\s*>", re.DOTALL | re.IGNORECASE),
    "target": re.compile(rb"<ref\b([^>]*)>(.*?)</ref\s*>", re.DOTALL | re.IGNORECASE),
}
VALUE = rb"\s*=\s*(?:\"([^\"]*)\"|'([^']*)'|([^\"'\s]*))"
NAMES = {b"amp": b"&", b"lt": b"<", b"gt": b">", b"quot": b'"', b"apos": b"'"}
ENTITY = re.compile(rb"&(?:(amp|lt|gt|quot|apos)|#([0-9]{1,7})|#x([0-9a-f]{1,6}));", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Segment:
    """One sentence of a test set and where it stands in it."""

    document: bytes
    number: bytes
    text: bytes

    @property
    def place(self) -> tuple[bytes, bytes]:
        """Document and number, the same on both sides of a test set; case does not count."""
        return self.document.lower(), self.number.lower()


def segments(path: Path, side: Literal["source", "target"], lang: str = "") -> list[Segment]:
    """The sentences of one side in the order of the file; of several xml references the first in `lang`."""
    with open_bytes(path) as stream:
        content = stream.read()
    _refuse_cut(path, content)
    marked = any(pattern.search(content) for pattern in SIDES.values())
    found = []
    for attributes, body in DOCUMENT.findall(content):
        if marked:
            body = _side(body, side, lang)
        document = _attribute(attributes, b"docid") or _attribute(attributes, b"id")
        found += [
            Segment(document, _attribute(marks, b"id"), _text(inner))
            for marks, inner in SEGMENT.findall(body)
        ]
    if not found:
        raise UserError(
            f"{path} holds no <doc> with <seg> of the {side} side in it{f' ({lang})' if lang else ''}; "
            "is it a WMT test set of this side?"
        )
    return found


def _side(document: bytes, side: Literal["source", "target"], lang: str) -> bytes:
    for attributes, body in SIDES[side].findall(document):
        if not lang or _fits(_attribute(attributes, b"lang").decode(errors="replace"), lang):
            return bytes(body)
    return b""


def _fits(marked: str, lang: str) -> bool:
    """Whether text of the language `marked` may be taken for `lang`; two regions differ, one may be open."""
    marked, lang = (name.lower().replace("_", "-") for name in (marked, lang))
    return marked in ("", lang, without_region(lang)) or without_region(marked) == lang


def _refuse_cut(path: Path, content: bytes) -> None:
    for tag in (b"doc", b"seg"):
        begun = len(re.findall(rb"<" + tag + rb"\b(?![^>]*/>)", content, re.IGNORECASE))
        ended = len(re.findall(rb"</" + tag + rb"\s*>", content, re.IGNORECASE))
        if begun != ended:
            name = tag.decode()
            raise UserError(f"{path} is cut off: {begun:,} <{name}> begin, {ended:,} end; copy it again.")


def _attribute(attributes: bytes, name: bytes) -> bytes:
    match = re.search(rb"\b" + name + VALUE, attributes, re.IGNORECASE)
    return _text(next(value for value in match.groups() if value is not None)) if match else b""


def _text(inner: bytes) -> bytes:
    return b" ".join(ENTITY.sub(_character, inner).split())


def _character(match: re.Match[bytes]) -> bytes:
    name, decimal, hexadecimal = match.groups()
    if name:
        return NAMES[name.lower()]
    code = int(decimal) if decimal else int(hexadecimal, 16)
    legal = 0x20 <= code < 0xD800 or 0xDFFF < code <= 0x10FFFF
    return chr(code).encode() if legal else match.group()
