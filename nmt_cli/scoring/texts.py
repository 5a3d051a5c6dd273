"""Reading of hypotheses and references as lines of text, from files of any kind, pipes or stdin."""

import re
import shutil
import sys
import tempfile
import weakref
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from nmt_cli.corpus import raw_files, sgm
from nmt_cli.errors import UserError
from nmt_cli.language import iso_code
from nmt_cli.runtime.atomic import reporting_full_disk
from nmt_cli.scoring.measures import LINES_AT_ONCE, Lines

STDIN = Path("-")


@dataclass(frozen=True, slots=True)
class Text:
    """The lines of a reference, a source, or a system's output."""

    name: str
    lines: Lines
    invalid: int
    """The number of lines that were not UTF-8. Their invalid bytes are replaced."""


class FileLines(Collection[str]):
    """The lines of a file without trailing whitespace. They are not in memory: each iteration reads the file
    again."""

    def __init__(self, path: Path, name: str) -> None:
        """Read the file once to count its lines. Messages call the file `name`."""
        self._path, self._name = path, name
        blocks = [(len(raw), _decoded(raw)[1]) for raw in raw_files.blocks(path, LINES_AT_ONCE, name)]
        self._count = sum(count for count, _ in blocks)
        self.invalid = sum(invalid for _, invalid in blocks)
        """The number of lines that are not UTF-8."""

    def __len__(self) -> int:
        return self._count

    def __contains__(self, line: object) -> bool:
        return any(line == other for other in self)

    def __iter__(self) -> Iterator[str]:
        """Yield the lines. At the end, raise `UserError` if their number has changed since the first
        reading."""
        count = 0
        for raw in raw_files.blocks(self._path, LINES_AT_ONCE, self._name):
            count += len(raw)
            yield from _decoded(raw)[0]
        if count != self._count:
            raise UserError(f"{self._name} was changed while it was read. Run it again.")


def read_reference(path: Path, lang: str) -> Text:
    """Read a reference from a file, pipe or stdin.

    `lang` chooses among the references of a WMT XML file, and has no effect on other files. An empty `lang`
    fits any. Raise `UserError` for a damaged WMT file.
    """
    return _read(path, lang, "target")


def read_source(path: Path) -> Text:
    """Read a source text from a file, pipe or stdin."""
    return _read(path, "", "source")


def read_hypotheses(path: Path) -> Text:
    """Read a system's output from a file, pipe or stdin. Of a WMT XML file, the first output is read."""
    return _read(path, "", "hypothesis" if ".xml" in raw_files.endings(path) else "target")


def read_documents(path: Path) -> Text:
    """Return the id of each line's document. The file has an id per line, or is a WMT test set. Raise
    `UserError` for a line without an id."""
    if sgm.is_test_set(path):
        text = Text(str(path), *_decoded([segment.document for segment in sgm.segments(path, "source")]))
    else:
        text = _read(path, "", "source")
    if missing := next((number for number, name in enumerate(text.lines, start=1) if not name), 0):
        raise UserError(f"{text.name} line {missing:,} has no id of a document. Give one in each line.")
    return text


def joined(lines: Lines, documents: Lines) -> list[str]:
    """Return the text of each document: its lines with spaces in between. Documents are ordered by their
    first lines.

    `documents` has the id of each line's document.
    """
    texts = dict[str, list[str]]()
    for document, line in zip(documents, lines, strict=True):
        texts.setdefault(document, []).append(line)
    return [*map(" ".join, texts.values())]


def refuse_second_stdin(paths: Sequence[Path]) -> None:
    """Raise `UserError` if `-`, which means stdin, occurs twice in `paths`."""
    if paths.count(STDIN) > 1:
        raise UserError("stdin can be read only once. Give files for all but one of the texts.")


def refuse_unequal(hypotheses: Text, reference: Text) -> None:
    """Raise `UserError` if two texts have different numbers of lines, or no lines."""
    counts = len(hypotheses.lines), len(reference.lines)
    if counts[0] != counts[1]:
        raise UserError(
            f"{hypotheses.name} has {counts[0]:,} lines, {reference.name} has {counts[1]:,}: they must match "
            "line for line."
        )
    if not counts[0]:
        raise UserError(f"{reference.name} is empty. Give a file with at least one line.")


def language_of(paths: Sequence[Path], languages: frozenset[str]) -> str:
    """Return the language that the names of `paths` end in, such as `ref.de`, `ref.de-AT.gz` or `ref.de.sgm`.

    It is one of `languages`. Return "" if no name ends in one, or the names end in different ones. An ending
    with two languages, such as `ref.en-de`, is ignored.
    """
    endings = set[str]()
    for path in paths:
        name = path.name
        while Path(name).suffix.lower() in (*raw_files.COMPRESSIONS, *sgm.SUFFIXES):
            name = Path(name).stem
        endings.add(Path(name).suffix.removeprefix("."))
    plain = {ending for ending in endings if not languages & {*re.split("[-_]", ending)[1:]}}
    candidates = {iso_code(ending) for ending in plain} & languages
    return candidates.pop() if len(candidates) == 1 else ""


def _read(path: Path, lang: str, side: sgm.Side) -> Text:
    """Read a text from a file, pipe or stdin.

    `side` and `lang` choose the segments of a WMT file. A pipe or stdin is copied to a temporary file, which
    is removed when the lines are no longer used.
    """
    if path != STDIN and not path.is_fifo():
        return _read_file(path, str(path), lang, side)
    name = "stdin" if path == STDIN else str(path)
    with ExitStack() as stack:
        # The copy keeps the name, because its ending may be the file type.
        copy = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="nmt-score-"))) / path.name
        source = sys.stdin.buffer if path == STDIN else path.open("rb")
        with reporting_full_disk(copy), source as stream, copy.open("wb") as out:
            shutil.copyfileobj(stream, out)
        text = _read_file(copy, name, lang, side)
        if isinstance(text.lines, FileLines):
            weakref.finalize(text.lines, stack.pop_all().close)  # the copy is needed until then
        return text


def _read_file(path: Path, name: str, lang: str, side: sgm.Side) -> Text:
    """Read a text from a file. Messages call it `name`. `side` and `lang` choose the segments of a WMT file.

    The segments of a WMT file stay in memory. Any other file is read again in each iteration.
    """
    if sgm.is_test_set(path):
        segments = sgm.segments(path, side, lang)
        return Text(name, *_decoded([segment.text for segment in segments]))
    read = FileLines(path, name)
    return Text(name, read, read.invalid)


def _decoded(raw: Sequence[bytes]) -> tuple[list[str], int]:
    """Decode lines, and remove trailing whitespace. Invalid bytes become U+FFFD. Also return the number of
    lines that have such bytes."""
    lines = [line.decode(errors="replace") for line in raw]
    # Invalid UTF-8 does not survive decoding and encoding.
    invalid = sum(text.encode() != line for text, line in zip(lines, raw, strict=True))
    # The sacrebleu command strips lines, too.
    return [line.rstrip() for line in lines], invalid
