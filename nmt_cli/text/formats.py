"""File formats with text to translate: HTML, XML, XLIFF, PO, SRT and WebVTT."""

import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from typing import Literal, get_args

from nmt_cli.text.markup import TAG, WORDS, Block, blocks, escaped

Format = Literal["html", "xml", "xliff", "po", "srt", "vtt"]

FORMATS: tuple[Format, ...] = get_args(Format)
SUFFIXES: dict[str, Format] = {
    **{f".{name}": name for name in FORMATS},
    **{".htm": "html", ".xhtml": "xml", ".xlf": "xliff", ".pot": "po"},
}

UNIT = re.compile(
    r"<source\b[^<>]*+>(?P<content>(?:[^<]|<(?!/?source\b))*+)</source\s*>(?P<space>\s*+)"
    r"(?:(?P<open><target\b[^<>]*?)(?:/>|>(?P<old>(?:[^<]|<(?!/?target\b))*+)</target\s*>))?"
)
"""A source text of XLIFF, and its translation, if there is one. A match never passes another start."""

STRINGS = r'(?:[ \t]*+"(?:[^"\\\n]|\\.)*+"[ \t\r]*+(?:\n|\Z))++'
MESSAGE = re.compile(
    rf"^msgid(?P<one>{STRINGS})(?:msgid_plural(?P<many>{STRINGS}))?"
    rf"(?P<targets>(?:msgstr(?:\[\d+\])?{STRINGS})++)",
    re.MULTILINE,
)
"""A message of PO: source texts and their translations."""

STRING = re.compile(r'"((?:[^"\\]|\\.)*+)"')
EMPTY = re.compile(r'^msgstr(\[\d+\])?[ \t]*"(?="[ \t\r]*$(?!\n[ \t]*"))', re.MULTILINE)
ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\r": "\\r"})
UNESCAPED = {escape: chr(character) for character, escape in ESCAPES.items()}

CUE = re.compile(r"^.*-->.*\n(?P<text>(?:[^\S\n]*+\S.*(?:\n|\Z))+)", re.MULTILINE)
"""The time of a subtitle, and its text up to a blank line."""

DIALOGUE = re.compile(r"\s*(?:<[^>]*>\s*)*[-–—]")


def blocks_of(text: str, form: Format, ignored: Collection[str] = ()) -> list[Block]:
    """Cut the text of a file into blocks, in order. In HTML and XML, elements with `ignored` names stay.

    XLIFF and PO get translations of texts that have none. The lines of a subtitle are one text, and its
    translation has the same number of lines. In a dialogue, each line is a text.
    """
    match form:
        case "html" | "xml":
            return blocks(text, form, ignored)
        case "xliff":
            return list(_xliff(text))
        case "po":
            return list(_po(text))
        case _:
            return list(_subtitles(text, escaped if form == "vtt" else str))


def _xliff(text: str) -> Iterator[Block]:
    """Yield the parts of an XLIFF file, with a target for each source that has none or an empty one."""
    position = 0
    for unit in UNIT.finditer(text):
        if (unit["old"] or "").strip() or not WORDS.search(TAG.sub("", unit["content"])):
            continue
        yield Block(text[position : unit.end("space")])
        yield Block((unit["open"] or "<target").rstrip() + ">")
        yield from blocks(unit["content"], "xml")
        yield Block("</target>" + ("" if unit["open"] else unit["space"]))
        position = unit.end()
    yield Block(text[position:])


def _po(text: str) -> Iterator[Block]:
    """Yield the parts of a PO file, with a translation for each empty `msgstr`. A `msgstr[0]` translates the
    singular, and all others the plural."""
    position = 0
    for message in MESSAGE.finditer(text):
        for empty in EMPTY.finditer(text, *message.span("targets")):
            source = message["one" if empty[1] in (None, "[0]") else "many"] or ""
            yield Block(text[position : empty.end()])
            yield from _po_text("".join(STRING.findall(source)))
            position = empty.end()
    yield Block(text[position:])


def _po_text(source: str) -> Iterator[Block]:
    """Yield the lines of a text of a PO file, with the ends of lines in between."""
    text = re.sub(r"\\.", lambda found: UNESCAPED.get(found[0], found[0]), source)
    for line in re.split(r"(\n)", text):
        has_tags = TAG.search(line) is not None
        for block in blocks(line) if has_tags else [Block(line, line if WORDS.search(line) else "")]:
            yield replace(block, raw=_po_escaped(block.raw), escape=_po_markup if has_tags else _po_escaped)


def _po_escaped(text: str) -> str:
    return text.translate(ESCAPES)


def _po_markup(text: str) -> str:
    return _po_escaped(escaped(text))


def _subtitles(text: str, escape: Callable[[str], str]) -> Iterator[Block]:
    """Yield the parts of an SRT or WebVTT file."""
    position = 0
    for cue in CUE.finditer(text):
        yield Block(text[position : cue.start("text")])
        lines = cue["text"].splitlines(keepends=True)
        is_dialogue = len(lines) > 1 and all(map(DIALOGUE.match, lines))
        for part in lines if is_dialogue else [cue["text"]]:
            for block in blocks(part):
                yield replace(block, escape=escape, lines=block.raw.count("\n") + 1)
        position = cue.end()
    yield Block(text[position:])
