"""TMX, the format of translation memories: its units as pairs, in memory that does not grow with the file.

Nothing is fetched and no entity is defined: a file that tries to is refused, as is one with a tag, a segment
or a nesting that no translation memory has.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Literal
from xml.parsers import expat

from nmt_cli.corpus.files import LONGEST_LINE, open_bytes
from nmt_cli.errors import UserError
from nmt_cli.language import fits

SUFFIX = ".tmx"
NATIVE = frozenset(("bpt", "ept", "it", "ph", "ut"))
"""Elements inside a segment that hold another format's codes, which are no text."""

LONGEST_TAG = 1 << 24
"""Bytes of one tag or comment, which the parser must hold as a whole."""

DEEPEST = 100
AT_ONCE = 1 << 18
LANGUAGES_TOLD = 20

Side = Literal["source", "target"]


def pairs(path: Path, source_lang: str, target_lang: str) -> Iterator[tuple[bytes, bytes]]:
    """The units that have a segment in either language, in order; of several in one language the first.

    A region is looked at where it is asked for: de-DE is de, and de is de-DE, but de-AT is not de-DE.
    """
    reader = _Reader(path, source_lang, target_lang)
    with open_bytes(path) as stream:
        while block := stream.read(AT_ONCE):
            yield from reader.feed(block)
    yield from reader.feed(b"", last=True)
    if not reader.found:
        seen = ", ".join(sorted(reader.languages)) or "none"
        raise UserError(
            f"{path} has no unit in both {source_lang} and {target_lang} (languages in it: {seen}); check "
            "--source-lang and --target-lang."
        )


class _Reader:
    """What is known between two tags."""

    def __init__(self, path: Path, source_lang: str, target_lang: str) -> None:
        self.found = 0
        self.languages: set[str] = set()
        self._path = path
        self._wanted: dict[Side, str] = {"source": source_lang, "target": target_lang}
        self._sides_of: dict[str, list[Side]] = {}
        self._fed = self._depth = self._native = self._length = 0
        self._sides: list[Side] = []
        """Those that the segment which is being read belongs to."""
        self._text: list[str] | None = None
        self._unit: dict[Side, bytes] = {}
        self._ready: list[tuple[bytes, bytes]] = []
        self._parser = expat.ParserCreate()
        self._parser.buffer_text = True
        self._parser.StartElementHandler = self._start
        self._parser.EndElementHandler = self._end
        self._parser.CharacterDataHandler = self._characters
        self._parser.EntityDeclHandler = lambda *told: self._refuse("it defines entities")
        self._parser.SkippedEntityHandler = lambda name, *told: self._refuse(f"&{name}; is not defined")

    def feed(self, block: bytes, last: bool = False) -> list[tuple[bytes, bytes]]:
        """The pairs that end in this part of the file."""
        self._ready = []
        try:
            self._parser.Parse(block, last)
        except expat.ExpatError as error:
            self._refuse(expat.ErrorString(error.code), error.lineno)
        except (ValueError, LookupError) as error:  # of an encoding that Python does not know
            self._refuse(str(error))
        self._fed += len(block)
        if self._fed - self._parser.CurrentByteIndex > LONGEST_TAG:
            self._refuse(f"a tag is longer than {LONGEST_TAG:,} bytes")
        return self._ready

    def _refuse(self, why: str, line: int = 0) -> None:
        where = f"{self._path} line {line or self._parser.CurrentLineNumber:,}"
        raise UserError(f"{where}: {why}; this is no translation memory that can be read.")

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        self._depth += 1
        if self._depth > DEEPEST:
            self._refuse(f"elements are nested more than {DEEPEST} deep")
        if self._depth == 1 and name != "tmx":
            self._refuse(f"it begins with <{name[:50]}>, not <tmx>")
        if self._text is not None:
            self._native += self._native > 0 or name in NATIVE
        elif name == "seg" and self._sides:
            self._text, self._length = [], 0
        elif name == "tuv":
            self._sides = self._named(attributes.get("xml:lang") or attributes.get("lang", ""))
        elif name == "tu":
            self._unit = {}

    def _end(self, name: str) -> None:
        self._depth -= 1
        if self._native:
            self._native -= 1
        elif name == "seg" and self._text is not None:
            # A segment may go over several lines, a pair may not.
            text = b" ".join("".join(self._text).encode().split())
            for side in self._sides:
                self._unit.setdefault(side, text)
            self._text = None
        elif name == "tuv":
            self._sides = []
        elif name == "tu" and len(self._unit) == len(self._wanted):
            self.found += 1
            self._ready.append((self._unit["source"], self._unit["target"]))

    def _characters(self, text: str) -> None:
        if self._text is not None and not self._native:
            self._length += len(text)
            if self._length > LONGEST_LINE:
                self._refuse(f"a segment has more than {LONGEST_LINE:,} characters")
            self._text.append(text)

    def _named(self, language: str) -> list[Side]:
        """The sides that a language is wanted for."""
        if language not in self._sides_of:
            if len(self.languages) < LANGUAGES_TOLD:
                self.languages.add(language)
            found = [side for side, wanted in self._wanted.items() if fits(language, wanted)]
            if len(self._sides_of) > 1000:  # made-up ones would fill the memory
                return found
            self._sides_of[language] = found
        return self._sides_of[language]
