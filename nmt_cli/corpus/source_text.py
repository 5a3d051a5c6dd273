"""Text to translate, in a file of any format, and its translations in the same format."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Literal

from nmt_cli.corpus import files, sgm

Kind = Literal["lines", "tsv", "sgm", "xml"]
TEST_SETS = ("sgm", "xml")


@dataclass(frozen=True, slots=True)
class Lines:
    """The format of plain text: a translation per line."""

    begin: bytes = b""
    """Content of the file before the first translation."""

    end: bytes = b""
    """Content of the file after the last translation."""

    def line(self, number: int, source: str, text: str) -> bytes:
        """Return the translation `text` with a line feed, in UTF-8. `number` and `source` have no effect."""
        return f"{text}\n".encode()


class Columns(Lines):
    """The format of tab-separated pairs: source, tab, translation."""

    def line(self, number: int, source: str, text: str) -> bytes:
        """Return `source`, a tab and `text` as a line in UTF-8. Tabs in `text` become spaces."""
        return "\t".join([source, text.replace("\t", " ")]).encode() + b"\n"


@dataclass(frozen=True, slots=True)
class Markup:
    """Templates of the lines around segments and documents in a test set."""

    begin: str
    document: str
    document_end: str
    end: str


MARKUP = {
    "sgm": Markup(
        begin='<tstset setid="{set}" srclang="{source_lang}" trglang="{lang}" sysid="nmt">\n',
        document='<doc docid="{name}" sysid="nmt">\n',
        document_end="</doc>\n",
        end="</tstset>\n",
    ),
    "xml": Markup(
        begin='<?xml version="1.0" encoding="utf-8"?>\n<dataset id="{set}">\n',
        document='<doc id="{name}">\n<hyp system="nmt" language="{lang}">\n',
        document_end="</hyp>\n</doc>\n",
        end="</dataset>\n",
    ),
}

NAMES = {"sgm": ("setid", "srclang"), "xml": ("dataset id",)}
"""Names of the attributes of a test set that a scorer compares."""


@dataclass(frozen=True, slots=True)
class TestSet:
    """The format of a WMT test set: a system's output, ready for submission."""

    markup: Markup
    segments: Sequence[sgm.Segment]
    """The segments of the source, one per line."""

    name: str
    """The id of the set."""

    languages: tuple[str, str]
    """Languages of the source and of the translations."""

    @property
    def begin(self) -> bytes:
        """Content of the file before the first translation."""
        source_lang, lang = map(_escaped, self.languages)
        return self.markup.begin.format(set=_escaped(self.name), source_lang=source_lang, lang=lang).encode()

    @property
    def end(self) -> bytes:
        """Content of the file after the last translation."""
        return (self.markup.document_end + self.markup.end).encode()

    def line(self, number: int, source: str, text: str) -> bytes:
        """Return the <seg> element of segment `number`, from 1, with the translation `text`. At the start of
        a document, first end the previous document, if any, and begin the new document."""
        segment = self.segments[number - 1]
        first = number == 1 or self.segments[number - 2].document != segment.document
        name, seg_id = (
            _escaped(part.decode(errors="replace")) for part in (segment.document, segment.number)
        )
        before = self.markup.document.format(name=name, lang=_escaped(self.languages[1])) if first else ""
        if first and number > 1:
            before = self.markup.document_end + before
        return f'{before}<seg id="{seg_id}">{_escaped(text)}</seg>\n'.encode()


Form = Lines | TestSet


def _escaped(text: str) -> str:
    """Return `text` with &, <, > and " as entities. Keep apostrophes: mteval-v13a.pl does not decode them."""
    return escape(text).replace("&#x27;", "'")


def kind_of(path: Path | None) -> Kind:
    """Return the format that the last two endings show. Other endings or None (stdin) give "lines"."""
    for ending in map(str.lower, path.suffixes[-2:] if path else ()):
        if ending == ".tsv":
            return "tsv"
        if ending in sgm.SUFFIXES:
            return "xml" if ending == ".xml" else "sgm"
    return "lines"


def first_columns(path: Path) -> Iterator[bytes]:
    """Yield each line up to its first tab, or the whole line. Raise the errors of `files.lines`."""
    return (line.partition(b"\t")[0] for line in files.lines(path))


def form_of(
    source: Path | None,
    target: Path | None,
    segments: Sequence[sgm.Segment],
    languages: tuple[str, str],
    warn: Callable[[str], None],
) -> Form:
    """Return the format that the name of `target`, or else of `source`, shows. A test set needs `segments`,
    and tab-separated text a `source` of its kind, else return lines. A missing set id becomes the file name
    to its first full stop, a missing source language `languages[0]`. `warn` gets what a scorer compares."""
    source_kind = kind_of(source)
    kind = kind_of(target) if target else source_kind
    if not (source and segments and kind in TEST_SETS):
        return Columns() if source_kind == kind == "tsv" else Lines()
    attributes = sgm.id_and_source_language(source)
    defaults = source.name.split(".")[0], languages[0]
    for name, value, default in zip(NAMES[kind], attributes, defaults, strict=False):
        if not value:
            warn(
                f"{source} has no {name}, so the output has {default}. If it is wrong, add it to both files."
            )
    set_id, source_lang = (value or default for value, default in zip(attributes, defaults, strict=True))
    return TestSet(MARKUP[kind], segments, set_id, (source_lang, languages[1]))
