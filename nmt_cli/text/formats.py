"""File formats with text to translate: HTML, XHTML, XML, XLIFF, PO, SRT and WebVTT.

A file is cut into blocks. A block has a text to translate, or it is a part of the file that never changes.
"""

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Literal, get_args

from nmt_cli.errors import UserError
from nmt_cli.text.declared import declared_utf8, needs_references, referenced, referenced_in_cdata
from nmt_cli.text.markup import SPACES, Block, blocks, escaped, in_cdata, markup_tokens, text_or_html
from nmt_cli.text.well_formed import tags_of

Format = Literal["html", "xhtml", "xml", "xliff", "po", "srt", "vtt"]

FORMATS: tuple[Format, ...] = get_args(Format)
SUFFIXES: dict[str, Format] = {f".{name}": name for name in FORMATS}
SUFFIXES |= {".htm": "html", ".xlf": "xliff", ".pot": "po"}

XML_FORMS = {"xhtml", "xml", "xliff"}

SIGNS = {"xliff": "<source", "po": "msgid", "srt": "-->", "vtt": "-->"}
"""A text that every file of a format contains."""

SEGMENTS = {"trans-unit", "segment"}
"""The elements of XLIFF 1.2 and 2 that contain a source and its target."""

MAX_FORMS = 10
"""The maximum number of translations of a message in PO. No language has more than six plural forms."""

CODES = frozenset(("bpt", "ept", "it", "ph"))
"""The elements of XLIFF 1.2 that contain codes of the original format, which are not text."""

_Element = tuple[int, int, int, int]
"""Offsets of an element of XML: its start, the start and the end of its content, and its end."""

STRINGS = r'(?:[ \t]*+"(?:[^"\\\n]|\\.)*+"[ \t\r]*+(?:\n|\Z))++'
MESSAGE = re.compile(
    rf"^msgid(?!_)(?:(?P<one>{STRINGS})(?:msgid_plural(?P<many>{STRINGS}))?"
    rf"(?P<targets>(?:msgstr(?:\[\d+\])?{STRINGS})++))?",
    re.MULTILINE,
)
"""A message of PO: source texts and their translations. A damaged message matches without groups."""

STRING = re.compile(r'"((?:[^"\\]|\\.)*+)"')
EMPTY = re.compile(r'^msgstr(\[\d+\])?[ \t]*"(?="[ \t\r]*$(?!\n[ \t]*"))', re.MULTILINE)
REFERENCE = re.compile(r"&(?:[A-Za-z]\w*|#\w+);")
"""A reference to a character. If a message of PO has none, it is not HTML, and its translation needs no
escapes."""

ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\r": "\\r"})
UNESCAPED = {escape: chr(character) for character, escape in ESCAPES.items()}

TIME = r"(?:\d++[^\S\n]*+\n)?[\d:.,]++[^\S\n]*+-->"
CUE = re.compile(rf"^(?>.*?-->).*+\n(?P<text>(?:(?!{TIME})(?!\r*+(?:\n|\Z)).*(?:\n|\Z))+)", re.MULTILINE)
"""The time of a subtitle, and its text up to an empty line or the next subtitle."""

BLANK = re.compile(r"(^[^\S\n]*+\n)", re.MULTILINE)
"""A line of a subtitle that has only whitespace."""

LEAD = re.compile(r"(?:\{\\[^{}]*+\}|\s)*+(?:(?:<[^<>]*+>|\s)*+(?P<dash>[-–—])\s*+)?")
"""Codes such as {\\an8} at the start of a subtitle, and the dash before the words of a speaker."""


def blocks_of(
    text: str, form: Format, ignored: Collection[str] = (), is_fragment: bool = False
) -> list[Block]:
    """Cut the text of a file into blocks, in order. Their `raw` parts joined are the file, with targets for
    XLIFF.

    - `form`: the format of the file.
    - `ignored`: names of elements in HTML, XHTML and XML that are not translated.
    - `is_fragment`: whether XHTML, XML or XLIFF may be a fragment that is not well-formed.

    In XLIFF and PO, only texts without a translation are translated. The lines of a subtitle are one text,
    whose translation has the same number of lines. In a dialogue, each line is a text. If a document of HTML,
    XHTML or XML is ASCII and declares another encoding than UTF-8, its translations are ASCII with character
    references.

    Raise `UserError` if the content does not belong to the format, a message of PO is incomplete, or XML is
    not well-formed.
    """
    # A truncated or wrong file has nothing to translate. It would be copied unchanged, without an error.
    if (sign := SIGNS.get(form, "")) not in text:
        raise UserError(f"the file does not contain {sign!r}. Check the file and its ending.")
    if form in XML_FORMS and not is_fragment:
        tags_of(text)
    match form:
        case "html" | "xhtml" | "xml":
            parts = blocks(text, form, ignored)
        case "xliff":
            parts = list(_xliff(text))
        case "po" | "srt" | "vtt":
            parts = list(_by_lines(text, form))
        case _:
            raise UserError(f"form must be one of {', '.join(FORMATS)} (got {form!r}).")
    return [*map(_with_references, parts)] if needs_references(text, form) else parts


def _with_references(block: Block) -> Block:
    """Return `block` with character references in its translation, which makes it ASCII."""
    refer = referenced_in_cdata if block.escape is in_cdata else referenced
    return replace(block, escape=lambda text: refer(block.escape(text)))


def _by_lines(text: str, form: Format) -> Iterator[Block]:
    """Yield the blocks of a PO, SRT or WebVTT file. All lines may end with a carriage return alone."""
    # The patterns find ends of lines only at a line feed, so such a file would stay untranslated.
    if "\r" in text and "\n" not in text:
        for block in _by_lines(text.replace("\r", "\n"), form):
            yield replace(block, raw=block.raw.replace("\n", "\r"))
    elif form == "po":
        yield from _po(text)
    else:
        yield from _subtitles(text, escaped if form == "vtt" else str)


def _xliff(text: str) -> Iterator[Block]:
    """Yield the blocks of an XLIFF file. A source without a target, or with an empty one, gets a target.

    Units in comments, and elements with `translate="no"`, do not change. Raise `UserError` for a unit inside
    a unit.
    """
    opened, children = list[tuple[str, int, int]](), dict[str, _Element]()
    end = position = 0
    unit = ""  # the name of the open unit
    for token in markup_tokens(text, "xml"):
        start, end = end, end + len(token.raw)
        if unit and token.name in SEGMENTS and token.kind in ("open", "void"):
            # Each would copy its source, with all units inside: 20 kB would become 4.5 MB.
            line = text.count("\n", 0, start) + 1
            raise UserError(f"line {line:,}: <{token.name}> is inside <{unit}>. Move it out.")
        if token.kind == "open":
            opened.append((token.name, start, end))
            unit = token.name if token.name in SEGMENTS else unit
            continue
        if token.kind == "close" and opened and opened[-1][0] == token.name:
            element = (*opened.pop()[1:], start, end)
        elif token.kind in ("void", "fixed"):
            element = (start, end if token.kind == "void" else start, end, end)
        else:
            continue
        # A note or a comment may be between source and target, so all children are collected first. Otherwise
        # a unit got a second target before the one that it had.
        if opened and opened[-1][0] in SEGMENTS:
            children[token.name] = element
        elif token.name in SEGMENTS:
            parts, written = _segment(text, position, children)
            yield from parts
            position, children, unit = written, {}, ""
    yield Block(text[position:])


def _segment(text: str, position: int, children: Mapping[str, _Element]) -> tuple[list[Block], int]:
    """Return the blocks of a segment of XLIFF with a new target, and the offset in `text` up to which they
    reach.

    - `position`: the offset at which the blocks begin, which is before the segment.
    - `children`: the elements of the segment by name, such as its source.

    If there is nothing to translate, return no blocks and `position`.
    """
    source, target = children.get("source"), children.get("target")
    # A copy of the source that is cut into sentences. The target gets the same sentences.
    divided = children.get("seg-source", source)
    content = text[slice(*divided[1:3])] if divided else ""
    parts = blocks(content, "xliff", CODES)
    if not source or not any(part.text for part in parts) or (target and text[slice(*target[1:3])].strip()):
        return [], position
    if target:
        start, inside, _, end = target
        opening = text[start:inside].rstrip("/> ") + ">"
    else:
        start = end = children.get("seg-source", source)[3]
        space = SPACES.match(text, end)
        opening = (space[0] if space else "") + "<target>"
    return [Block(text[position:start] + opening), *parts, Block("</target>")], end


def _po(text: str) -> Iterator[Block]:
    """Yield the blocks of a PO file. Each empty `msgstr` gets a translation, and the header declares UTF-8.

    A `msgstr[0]` gets a translation of the singular, all others one of the plural.
    """
    text, _ = declared_utf8(text, "po")
    position = 0
    for message in MESSAGE.finditer(text):
        if not message["targets"]:
            line = text.count("\n", 0, message.start()) + 1
            raise UserError(f"line {line:,}: the message is incomplete. Correct msgid and msgstr.")
        for number, empty in enumerate(EMPTY.finditer(text, *message.span("targets")), start=1):
            # Each copies its source, so the output could grow with the square of the file: 10 kB became 1.6
            # MB.
            if number > MAX_FORMS:
                line = text.count("\n", 0, empty.start()) + 1
                raise UserError(
                    f"line {line:,}: the message has more than {MAX_FORMS} msgstr. Remove this one."
                )
            source = message["one" if empty[1] in (None, "[0]") else "many"] or ""
            yield Block(text[position : empty.end()])
            yield from _po_text("".join(STRING.findall(source)))
            position = empty.end()
    yield Block(text[position:])


def _po_text(source: str) -> Iterator[Block]:
    """Yield the blocks of a message of PO, given in its escaped form. Each line is a text."""
    text = re.sub(r"\\.", lambda found: UNESCAPED.get(found[0], found[0]), source)
    for line in re.split(r"(\n)", text):
        for block in text_or_html(line):
            # In plain text, "Save & exit" must not become "Save &amp; exit".
            escape = block.escape if REFERENCE.search(block.raw) else str
            yield replace(block, raw=_po_escaped(str, block.raw), escape=partial(_po_escaped, escape))


def _po_escaped(escape: Callable[[str], str], text: str) -> str:
    return escape(text).translate(ESCAPES)


def _subtitles(text: str, escape: Callable[[str], str]) -> Iterator[Block]:
    """Yield the blocks of an SRT or WebVTT file. `escape` prepares a translation for the file."""
    position = 0
    for cue in CUE.finditer(text):
        yield Block(text[position : cue.start("text")])
        lines = cue["text"].splitlines(keepends=True)
        is_dialogue = all(lead["dash"] for line in lines if line.strip() and (lead := LEAD.match(line)))
        for part in lines if is_dialogue else BLANK.split(cue["text"]):
            # As a part of the text, the dash of a speaker moved elements to other words, and models lost
            # codes.
            content = LEAD.sub("", part, count=1)
            yield Block(part.removesuffix(content))
            for block in blocks(content):
                yield replace(block, escape=escape, lines=block.raw.count("\n") + 1)
        position = cue.end()
    yield Block(text[position:])
