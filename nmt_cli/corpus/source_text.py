"""Text to be translated, in a file of any kind, and its translations in the form in which it came."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Literal, Protocol

from nmt_cli.corpus import files, sgm

Kind = Literal["lines", "tsv", "sgm", "xml"]
TEST_SETS = ("sgm", "xml")


class Form(Protocol):
    """How translations stand in a file."""

    @property
    def begin(self) -> bytes:
        """What comes before the first."""

    @property
    def end(self) -> bytes:
        """What comes behind the last."""

    def line(self, number: int, source: str, text: str) -> bytes:
        """Translation `text` of line `number`, counted from 1."""


@dataclass(frozen=True, slots=True)
class Lines:
    """A line for a line."""

    begin: bytes = b""
    end: bytes = b""

    def line(self, number: int, source: str, text: str) -> bytes:
        """See `Form`."""
        return f"{text}\n".encode()


@dataclass(frozen=True, slots=True)
class Columns:
    """Source, tab, translation."""

    begin: bytes = b""
    end: bytes = b""

    def line(self, number: int, source: str, text: str) -> bytes:
        """See `Form`."""
        # A model may have learnt to write tabs, but a row must keep its two columns.
        return "\t".join([source, text.replace("\t", " ")]).encode() + b"\n"


@dataclass(frozen=True, slots=True)
class Markup:
    """The lines around documents, in each kind of test set."""

    begin: str
    document: str
    document_end: str
    end: str


MARKUP = {
    "sgm": Markup(
        begin='<tstset trglang="{lang}">\n',
        document='<doc docid="{name}" sysid="nmt">\n',
        document_end="</doc>\n",
        end="</tstset>\n",
    ),
    "xml": Markup(
        begin='<?xml version="1.0" encoding="utf-8"?>\n<dataset>\n',
        document='<doc id="{name}">\n<hyp system="nmt" language="{lang}">\n',
        document_end="</hyp>\n</doc>\n",
        end="</dataset>\n",
    ),
}


@dataclass(frozen=True, slots=True)
class TestSet:
    """A system's output on a WMT test set, as it is submitted."""

    markup: Markup
    segments: Sequence[sgm.Segment]
    """Those of the source, one for each line."""

    lang: str
    """Of the translations."""

    @property
    def begin(self) -> bytes:
        """See `Form`."""
        return self.markup.begin.format(lang=escape(self.lang)).encode()

    @property
    def end(self) -> bytes:
        """See `Form`."""
        return (self.markup.document_end + self.markup.end).encode()

    def line(self, number: int, source: str, text: str) -> bytes:
        """See `Form`."""
        segment = self.segments[number - 1]
        first = number == 1 or self.segments[number - 2].document != segment.document
        name, place = (escape(part.decode(errors="replace")) for part in (segment.document, segment.number))
        before = self.markup.document.format(name=name, lang=escape(self.lang)) if first else ""
        if first and number > 1:
            before = self.markup.document_end + before
        return f'{before}<seg id="{place}">{escape(text)}</seg>\n'.encode()


def kind_of(path: Path | None) -> Kind:
    """What is in a file, by the endings of its name; stdin and stdout, which have none, are lines."""
    for ending in map(str.lower, path.suffixes[-2:] if path else ()):  # of two, for .tsv.gz
        if ending == ".tsv":
            return "tsv"
        if ending in sgm.SUFFIXES:
            return "xml" if ending == ".xml" else "sgm"
    return "lines"


def first_columns(path: Path) -> Iterator[bytes]:
    """Of each line what stands before its first tab."""
    return (line.partition(b"\t")[0] for line in files.lines(path))


def form_of(source: Path | None, target: Path | None, segments: Sequence[sgm.Segment], lang: str) -> Form:
    """As in `source`, unless the name of `target` says otherwise; a test set has `segments`."""
    read = kind_of(source)
    wanted = kind_of(target) if target else read
    if segments and wanted in TEST_SETS:
        return TestSet(MARKUP[wanted], segments, lang)
    return Columns() if read == wanted == "tsv" else Lines()
