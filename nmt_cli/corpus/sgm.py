"""WMT test sets: the sgm files of newstest2008 to 2020, and the xml files since 2021.

A set has documents, and a document has numbered segments. An xml file contains several sides, an sgm file
only one. No XML parser is used, because sgm files are not well-formed, and a file from outside must not make
a parser fetch or expand anything.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Literal

from nmt_cli.corpus.raw_files import MOST_BYTES_HELD, endings, open_bytes, refuse_large
from nmt_cli.errors import UserError
from nmt_cli.language import fits

SUFFIXES = (".sgm", ".sgml", ".xml")

Side = Literal["source", "target", "hypothesis"]
TAG = re.compile(rb"<(/?)(doc|src|ref|hyp|seg)\b([^<>]*)>", re.IGNORECASE)
"""A tag of an element that is read. Matching takes linear time for any input."""

ROOT = re.compile(
    rb"(?:\xef\xbb\xbf)?(?:\s++|<\?[^>]*+>|<!--.*?-->|<![^>]*+>)*+"
    rb"<(?:dataset|doc|mteval|(?:src|ref|tst)set)[\s>].*<seg[\s/>]",
    re.IGNORECASE | re.DOTALL,
)
"""The start of a test set: its root element, up to the first segment."""

SIDES: dict[Side, bytes] = {"source": b"src", "target": b"ref", "hypothesis": b"hyp"}
VALUE = rb"\s*=\s*(?:\"([^\"]*)\"|'([^']*)'|([^\"'\s]*))"
Tag = re.Match[bytes]
Tags = Sequence[Tag]

NAMES = {b"amp": b"&", b"lt": b"<", b"gt": b">", b"quot": b'"', b"apos": b"'"}
ENTITY = re.compile(rb"&(?:(amp|lt|gt|quot|apos)|#([0-9]{1,7})|#x([0-9a-f]{1,6}));", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Segment:
    """One sentence of a test set, with the id of its document and its number there."""

    document: bytes
    number: bytes
    text: bytes

    @property
    def key(self) -> tuple[bytes, bytes]:
        """Document and number in lower case. The two segments of a pair have equal keys."""
        return self.document.lower(), self.number.lower()


def holds_test_set(content: bytes) -> bool:
    """Return whether the `content` of an xml file is a test set. Its root element decides, and it must have a
    segment."""
    return ROOT.match(content) is not None


def is_test_set(path: Path) -> bool:
    """Return whether a file is a test set by the ending of its name, which may be followed by one of a
    compression."""
    return any(ending in SUFFIXES for ending in endings(path))


def segments(path: Path, side: Side, lang: str = "") -> list[Segment]:
    """Return the segments of one side, in order.

    In an xml file, `side` and `lang` choose the element of each document: the first one of the side in that
    language, or in any language if `lang` is "". An sgm file has one side, so they have no effect. Raise
    `UserError` if there are no such segments, or the file is cut off or too large.
    """
    with open_bytes(path) as stream:
        content = stream.read(MOST_BYTES_HELD + 1)
    # A compressed file may be small and have gigabytes of content, so the content is not read further than
    # the limit.
    refuse_large(len(content), str(path), MOST_BYTES_HELD)
    tags = list(TAG.finditer(content))
    _refuse_cut(path, tags)
    # An xml labels the sides. An sgm contains one side without a label.
    labelled = any(tag[2].lower() in SIDES.values() for tag in tags)
    result: list[Segment] = []
    for document in _elements(tags, b"doc"):
        name = _attribute(document[0][3], b"docid") or _attribute(document[0][3], b"id")
        for element in _elements(_of_side(document, side, lang) if labelled else document, b"seg"):
            text = _text(content[element[0].end() : element[-1].start()])
            refuse_large(len(text), f"{path} segment {len(result) + 1:,}")
            result.append(Segment(name, _attribute(element[0][3], b"id"), text))
    if not result:
        raise UserError(
            f"{path} holds no <doc> with <seg> of the {side} side in it{f' ({lang})' if lang else ''}. "
            "Is it a WMT test set of this side?"
        )
    return result


def pairs(source: Path, target: Path, languages: tuple[str, str], name: str) -> list[tuple[bytes, bytes]]:
    """Return (source, target) of each segment of two test sets. `languages` are those of source and target.

    Raise `UserError` unless both sets have the same segments in the same order. The message calls the source
    `name`.
    """
    sides = segments(source, "source", languages[0]), segments(target, "target", languages[1])
    for number, pair in enumerate(zip_longest(*sides), start=1):
        if None in pair or pair[0].key != pair[1].key:
            source_id, target_id = (
                f"doc {side.document.decode(errors='replace')} seg {side.number.decode(errors='replace')}"
                if side
                else "nothing"
                for side in pair
            )
            raise UserError(
                f"{name} segment {number:,} is {source_id}, but {target} has {target_id} there: "
                "source and target must have the same segments in the same order."
            )
    return [(source.text, target.text) for source, target in zip(*sides, strict=True)]


def _elements(tags: Tags, name: bytes) -> Iterator[Tags]:
    """Yield the tags of each element called `name`, from its start tag to its end tag. An empty element, such
    as <seg id="3"/>, is one tag. An element without an end tag is left out."""
    begin = None
    for index, tag in enumerate(tags):
        if begin is None and _begins(tag, name):
            if tag[3].endswith(b"/"):
                yield [tag]
            else:
                begin = index
        elif begin is not None and _ends(tag, name):
            yield tags[begin : index + 1]
            begin = None


def _of_side(document: Tags, side: Side, lang: str) -> Tags:
    """Return the tags of the document's first element that has the `side` and the language `lang`, or [].

    An element without a language fits any `lang`. An empty `lang` fits any element.
    """
    for element in _elements(document, SIDES[side]):
        label = _attribute(element[0][3], b"lang").decode(errors="replace")
        if not lang or not label or fits(label, lang):
            return element
    return []


def _begins(tag: Tag, name: bytes) -> bool:
    return not tag[1] and tag[2].lower() == name


def _ends(tag: Tag, name: bytes) -> bool:
    return bool(tag[1]) and tag[2].lower() == name


def _refuse_cut(path: Path, tags: Tags) -> None:
    """Raise `UserError` if <doc> or <seg> has different numbers of start and end tags."""
    for name in (b"doc", b"seg"):
        begun = sum(_begins(tag, name) and not tag[3].endswith(b"/") for tag in tags)
        ended = sum(_ends(tag, name) for tag in tags)
        if begun != ended:
            element = f"<{name.decode()}>"
            raise UserError(f"{path} is cut off: {begun:,} {element} begin, {ended:,} end. Copy it again.")


def _attribute(attributes: bytes, name: bytes) -> bytes:
    """Return the value of an attribute in the text of a tag, or b"" if it is missing. Upper and lower case
    are equal in names."""
    match = re.search(rb"\b" + name + VALUE, attributes, re.IGNORECASE)
    return _text(next(value for value in match.groups() if value is not None)) if match else b""


def _text(inner: bytes) -> bytes:
    """Return the text of an element with entities replaced and single spaces between words. Entities are
    replaced once, so that &amp;lt; becomes &lt;."""
    return b" ".join(ENTITY.sub(_character, inner).split())


def _character(match: re.Match[bytes]) -> bytes:
    """Return the character of an entity. The entity of a control character or an illegal number does not
    change."""
    name, decimal, hexadecimal = match.groups()
    if name:
        return NAMES[name.lower()]
    code = int(decimal) if decimal else int(hexadecimal, 16)
    # A line break would split the line, and half of a surrogate pair is not a character.
    legal = 0x20 <= code < 0xD800 or 0xDFFF < code <= 0x10FFFF
    return chr(code).encode() if legal else match.group()
