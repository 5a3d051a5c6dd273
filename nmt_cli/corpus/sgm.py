"""WMT test sets: the sgm of newstest2008 to 2020 and the xml since 2021.

Neither is read by an XML parser: the sgm files are not well-formed, and a file from outside must not be able
to make us fetch or expand anything.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Literal

from nmt_cli.corpus.files import MOST_BYTES_HELD, open_bytes, refuse_large
from nmt_cli.errors import UserError
from nmt_cli.language import fits

SUFFIXES = (".sgm", ".sgml", ".xml")

Side = Literal["source", "target", "hypothesis"]
TAG = re.compile(rb"<(/?)(doc|src|ref|hyp|seg)\b([^<>]*)>", re.IGNORECASE)
"""No part of a file is looked at twice, however it was made."""

SET = re.compile(rb"<(?:srcset|refset|tstset|dataset)\b([^<>]*)>", re.IGNORECASE)

SIDES: dict[Side, bytes] = {"source": b"src", "target": b"ref", "hypothesis": b"hyp"}
VALUE = rb"\s*=\s*(?:\"([^\"]*)\"|'([^']*)'|([^\"'\s]*))"
Tags = Sequence[re.Match[bytes]]

NAMES = {b"amp": b"&", b"lt": b"<", b"gt": b">", b"quot": b'"', b"apos": b"'"}
ENTITY = re.compile(rb"&(?:(amp|lt|gt|quot|apos)|#([0-9]{1,7})|#x([0-9a-f]{1,6}));", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Segment:
    """One sentence of a test set, with the document it is in and its number there."""

    document: bytes
    number: bytes
    text: bytes

    @property
    def place(self) -> tuple[bytes, bytes]:
        """Document and number in lower case, the same on both sides of a test set."""
        return self.document.lower(), self.number.lower()


def segments(path: Path, side: Side, lang: str = "") -> list[Segment]:
    """The sentences of one side in the order of the file; of several xml references the first in `lang`."""
    content = _content(path)
    tags = list(TAG.finditer(content))
    _refuse_cut(path, tags)
    documents = list(_documents(tags))
    # An xml has both sides in one file, an sgm only one, unmarked.
    if any(tag[2].lower() in SIDES.values() for tag in tags):
        parts = [(document[0], _of_side(document, side, lang)) for document in documents]
    else:
        parts = [(document[0], document) for document in documents]
    found = [segment for document, inside in parts for segment in _segments(content, document, inside)]
    for number, segment in enumerate(found, start=1):
        refuse_large(len(segment.text), f"{path} segment {number:,}")
    if not found:
        raise UserError(
            f"{path} holds no <doc> with <seg> of the {side} side in it{f' ({lang})' if lang else ''}; "
            "is it a WMT test set of this side?"
        )
    return found


def pairs(source: Path, target: Path, languages: tuple[str, str], name: str) -> list[tuple[bytes, bytes]]:
    """Return the segments of both sides. Messages call the source file `name`."""
    sides = segments(source, "source", languages[0]), segments(target, "target", languages[1])
    for number, both in enumerate(zip_longest(*sides), start=1):
        if None in both or both[0].place != both[1].place:
            ours, theirs = (
                f"doc {side.document.decode()} seg {side.number.decode()}" if side else "nothing"
                for side in both
            )
            raise UserError(
                f"{name} segment {number:,} is {ours}, but {target} has {theirs} there: "
                "source and target must have the same segments in the same order."
            )
    return [(source.text, target.text) for source, target in zip(*sides, strict=True)]


def _content(path: Path) -> bytes:
    """Return the content of a test set, which is small."""
    with open_bytes(path) as stream:
        content = stream.read(MOST_BYTES_HELD + 1)
    refuse_large(len(content), str(path), MOST_BYTES_HELD)
    return content


def id_and_source_language(path: Path) -> tuple[str, str]:
    """Return what a test set gives as its id and source language, "" for what it does not give."""
    match = SET.search(_content(path))
    given = match[1] if match else b""
    name = _attribute(given, b"setid") or _attribute(given, b"id")
    return name.decode(errors="replace"), _attribute(given, b"srclang").decode(errors="replace")


def _documents(tags: Tags) -> Iterator[Tags]:
    """The tags of each document, beginning with its own opening tag, without its closing one."""
    begin = None
    for place, tag in enumerate(tags):
        if _begins(tag, b"doc") and begin is None:
            begin = place
        elif _ends(tag, b"doc") and begin is not None:
            yield tags[begin:place]
            begin = None


def _segments(content: bytes, document: re.Match[bytes], inside: Tags) -> Iterator[Segment]:
    """The segments among the tags `inside` a document."""
    name = _attribute(document[3], b"docid") or _attribute(document[3], b"id")
    begin: re.Match[bytes] | None = None
    for tag in inside:
        if _begins(tag, b"seg") and begin is None:
            if tag[3].endswith(b"/"):  # an empty one: <seg id="3"/>
                yield Segment(name, _attribute(tag[3], b"id"), b"")
            else:
                begin = tag
        elif _ends(tag, b"seg") and begin is not None:
            yield Segment(name, _attribute(begin[3], b"id"), _text(content[begin.end() : tag.start()]))
            begin = None


def _of_side(document: Tags, side: Side, lang: str) -> Tags:
    """The tags inside the first source or reference that is in `lang`."""
    begin = None
    for place, tag in enumerate(document):
        marked = _attribute(tag[3], b"lang").decode(errors="replace")
        if begin is None and _begins(tag, SIDES[side]) and (not lang or not marked or fits(marked, lang)):
            begin = place
        elif begin is not None and _ends(tag, SIDES[side]):
            return document[begin:place]
    return []


def _begins(tag: re.Match[bytes], name: bytes) -> bool:
    return not tag[1] and tag[2].lower() == name


def _ends(tag: re.Match[bytes], name: bytes) -> bool:
    return bool(tag[1]) and tag[2].lower() == name


def _refuse_cut(path: Path, tags: Tags) -> None:
    """Raise `UserError` for a file that was cut off, which would pass for a shorter test set."""
    for name in (b"doc", b"seg"):
        begun = sum(_begins(tag, name) and not tag[3].endswith(b"/") for tag in tags)
        ended = sum(_ends(tag, name) for tag in tags)
        if begun != ended:
            told = name.decode()
            raise UserError(f"{path} is cut off: {begun:,} <{told}> begin, {ended:,} end; copy it again.")


def _attribute(attributes: bytes, name: bytes) -> bytes:
    match = re.search(rb"\b" + name + VALUE, attributes, re.IGNORECASE)
    return _text(next(value for value in match.groups() if value is not None)) if match else b""


def _text(inner: bytes) -> bytes:
    # What an entity stands for is not looked at again, so none can stand for many others. A segment may go
    # over several lines.
    return b" ".join(ENTITY.sub(_character, inner).split())


def _character(match: re.Match[bytes]) -> bytes:
    name, decimal, hexadecimal = match.groups()
    if name:
        return NAMES[name.lower()]
    code = int(decimal) if decimal else int(hexadecimal, 16)
    # A line end would break the line in two, and half a surrogate pair is no character.
    legal = 0x20 <= code < 0xD800 or 0xDFFF < code <= 0x10FFFF
    return chr(code).encode() if legal else match.group()
