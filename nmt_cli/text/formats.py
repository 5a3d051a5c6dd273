"""File formats with text to translate: HTML, XML, XLIFF, PO, SRT and WebVTT."""

import re
from collections.abc import Callable, Iterator, Sequence
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
    r"(?P<source><source\b[^<>]*+>(?P<content>(?:[^<]|<(?!/?source\b))*+)</source\s*>)(?P<space>\s*+)"
    r"(?:(?P<open><target\b[^<>]*?)(?:/>|>(?P<old>(?:[^<]|<(?!/?target\b))*+)</target\s*>))?"
)
"""A source text of XLIFF, and its translation, if there is one. A match never passes another start."""

STRING = re.compile(r'\s*"((?:[^"\\]|\\.)*)"\s*')
KEYWORD = re.compile(r"(msgctxt|msgid_plural|msgid|msgstr(?:\[\d+\])?)(?=[\s\"])")
ESCAPES = {"\\n": "\n", "\\t": "\t", "\\r": "\r", '\\"': '"', "\\\\": "\\"}
DIALOGUE = re.compile(r"\s*(?:<[^>]*>\s*)*[-–—]")


def blocks_of(text: str, form: Format) -> list[Block]:
    """Cut the text of a file into blocks, in order.

    XLIFF and PO get translations of texts that have none. The lines of a subtitle are one text, and its
    translation has the same number of lines. In a dialogue, each line is a text.
    """
    match form:
        case "html" | "xml":
            return blocks(text, form)
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
        yield Block(text[position : unit.end("source")] + unit["space"])
        yield Block(f"{unit['open'].rstrip() if unit['open'] else '<target'}>")
        yield from blocks(unit["content"], "xml")
        yield Block("</target>" + ("" if unit["open"] else unit["space"]))
        position = unit.end()
    yield Block(text[position:])


def _po(text: str) -> Iterator[Block]:
    """Yield the parts of a PO file, with a translation for each empty `msgstr`. A `msgstr[0]` translates the
    singular, and all others the plural."""
    texts: dict[str, list[str]] = {}
    keyword = ""
    lines = text.splitlines(keepends=True)
    for number, line in enumerate(lines):
        if (match := KEYWORD.match(line)) and (string := STRING.fullmatch(line, match.end())):
            keyword = match[0]
            if keyword in ("msgid", "msgctxt"):
                texts = {} if keyword == "msgctxt" or "msgid" in texts else texts
            texts[keyword] = [string[1]]
            following = STRING.fullmatch(lines[number + 1]) if number + 1 < len(lines) else None
            source = ""
            if keyword.startswith("msgstr") and not string[1] and not following:
                source = "".join(
                    texts.get("msgid" if keyword in ("msgstr", "msgstr[0]") else "msgid_plural", ())
                )
            if source:
                yield Block(f'{match[0]} "')
                yield from _po_text(source)
                yield Block('"' + line[len(line.rstrip()) :])
                continue
        elif keyword and (string := STRING.fullmatch(line)):
            texts[keyword].append(string[1])
        yield Block(line)


def _po_text(source: str) -> Iterator[Block]:
    """Yield the lines of a text of a PO file, with the ends of lines in between."""
    for part in re.split(r"(\\n)", source):
        line = re.sub(r"\\.", lambda found: ESCAPES.get(found[0], found[0]), part)
        if part == "\\n" or not WORDS.search(line):
            yield Block(part)
        elif TAG.search(line):
            for block in blocks(line):
                yield replace(block, raw=_po_escaped(block.raw), escape=_po_escaped_markup)
        else:
            yield Block(line, line, escape=_po_escaped)


def _po_escaped(text: str) -> str:
    for escape, character in reversed(ESCAPES.items()):
        text = text.replace(character, escape)
    return text


def _po_escaped_markup(text: str) -> str:
    return _po_escaped(escaped(text))


def _subtitles(text: str, escape: Callable[[str], str]) -> Iterator[Block]:
    """Yield the parts of an SRT or WebVTT file. A text is between a line with "-->" and a blank line."""
    lines: list[str] = []
    in_text = False
    for line in [*text.splitlines(keepends=True), ""]:
        if in_text and line.strip():
            lines.append(line)
            continue
        if lines:
            yield from _subtitle(lines, escape)
            lines = []
        in_text = "-->" in line
        yield Block(line)


def _subtitle(lines: Sequence[str], escape: Callable[[str], str]) -> Iterator[Block]:
    """Yield the blocks of the text of a subtitle."""
    if len(lines) > 1 and all(DIALOGUE.match(line) for line in lines):
        texts = [[line] for line in lines]
    else:
        texts = [list(lines)]
    for own in texts:
        for block in blocks("".join(own)):
            yield replace(block, escape=escape, lines=block.raw.strip().count("\n") + 1)
