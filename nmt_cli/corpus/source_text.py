"""Text to be translated, in a file of any kind, and its translations in the form in which it came."""

from collections.abc import Callable, Iterator, Sequence
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
"""What a test set says of itself and a scorer compares."""


@dataclass(frozen=True, slots=True)
class TestSet:
    """A system's output on a WMT test set, as it is submitted."""

    markup: Markup
    segments: Sequence[sgm.Segment]
    """Those of the source, one for each line."""

    name: str
    """The id of the set."""

    languages: tuple[str, str]
    """Of the source and of the translations."""

    @property
    def begin(self) -> bytes:
        """See `Form`."""
        source_lang, lang = map(_escaped, self.languages)
        return self.markup.begin.format(set=_escaped(self.name), source_lang=source_lang, lang=lang).encode()

    @property
    def end(self) -> bytes:
        """See `Form`."""
        return (self.markup.document_end + self.markup.end).encode()

    def line(self, number: int, source: str, text: str) -> bytes:
        """See `Form`."""
        segment = self.segments[number - 1]
        first = number == 1 or self.segments[number - 2].document != segment.document
        name, place = (_escaped(part.decode(errors="replace")) for part in (segment.document, segment.number))
        before = self.markup.document.format(name=name, lang=_escaped(self.languages[1])) if first else ""
        if first and number > 1:
            before = self.markup.document_end + before
        return f'{before}<seg id="{place}">{_escaped(text)}</seg>\n'.encode()


def _escaped(text: str) -> str:
    """Return `text` with the entities that mteval-v13a.pl decodes, which leaves apostrophes as they are."""
    return escape(text).replace("&#x27;", "'")


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


def form_of(
    source: Path | None,
    target: Path | None,
    segments: Sequence[sgm.Segment],
    languages: tuple[str, str],
    warn: Callable[[str], None],
) -> Form:
    """Return the form of `source`, unless the name of `target` has another; a test set has `segments`.

    The scorer wants the id and the source language of a test set. `warn` receives a line about each that
    the source lacks and that the name of its file or `languages` replaces.
    """
    read = kind_of(source)
    wanted = kind_of(target) if target else read
    if not (source and segments and wanted in TEST_SETS):
        return Columns() if read == wanted == "tsv" else Lines()
    given = sgm.id_and_source_language(source)
    instead = source.name.split(".")[0], languages[0]
    for what, value, other in zip(NAMES[wanted], given, instead, strict=False):
        if not value:
            warn(f"{source} has no {what}, which is {other} in the output; add it to both if it is another.")
    return TestSet(MARKUP[wanted], segments, given[0] or instead[0], (given[1] or instead[1], languages[1]))
