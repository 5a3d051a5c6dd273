"""TMX, the format of translation memories, read with memory that does not depend on the size of the file.

A unit (`tu`) has a variant (`tuv`) for each language, with a segment of text (`seg`). The parser fetches
nothing, and defines no entities. A file that needs either is refused. So is a tag, a segment or nesting that
is too large for a translation memory.
"""

from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Literal
from xml.parsers import expat

from nmt_cli.corpus.raw_files import LONGEST_LINE, open_bytes
from nmt_cli.errors import UserError
from nmt_cli.language import fits

SUFFIX = ".tmx"
NATIVE = frozenset(("bpt", "ept", "it", "ph", "ut"))
"""The elements in a segment that contain codes of another format, which are not text."""

LONGEST_TAG = 1 << 24
"""The maximum number of bytes of a tag or comment, which the parser holds in memory as a whole."""

MAX_DEPTH = 100
BLOCK_BYTES = 1 << 18

MAX_LISTED = 20
"""The maximum number of languages that a message lists."""

Side = Literal["source", "target"]

_fits = lru_cache(maxsize=100)(fits)
"""The comparison of two names of languages. It is cached, because most files repeat two names, and a
comparison takes as long as the parsing of a segment."""


def pairs(path: Path, source_lang: str, target_lang: str) -> Iterator[tuple[bytes, bytes]]:
    """Yield (source, target) of each unit that has a segment in both languages. If there are several in a
    language, the first is taken.

    A region, as in "de-AT", matters only if both names that are compared have one. Raise `UserError` if no
    unit has both languages, or the file is damaged, defines entities, or has a part that is too large.
    """
    reader = _Reader(path, source_lang, target_lang)
    with open_bytes(path) as stream:
        while block := stream.read(BLOCK_BYTES):
            yield from reader.feed(block)
    yield from reader.feed(b"", last=True)
    if not reader.count:
        seen = ", ".join(sorted(reader.languages)) or "none"
        raise UserError(
            f"{path} has no unit in both {source_lang} and {target_lang} (languages in it: {seen}). Check "
            "--source-lang and --target-lang."
        )


class _Reader:
    """The state of reading a file block by block."""

    def __init__(self, path: Path, source_lang: str, target_lang: str) -> None:
        self.count = 0
        self.languages: set[str] = set()
        self._path = path
        self._langs: dict[Side, str] = {"source": source_lang, "target": target_lang}
        self._fed = self._depth = self._native = self._length = 0
        self._sides: list[Side] = []
        """The sides to which the current segment belongs. Empty if it is in another language."""
        self._text: list[str] | None = None
        """The parts of the current segment. None outside of a segment."""
        self._unit: dict[Side, bytes] = {}
        self._pairs: list[tuple[bytes, bytes]] = []
        self._parser = expat.ParserCreate()
        self._parser.buffer_text = True
        self._parser.StartElementHandler = self._start
        self._parser.EndElementHandler = self._end
        self._parser.CharacterDataHandler = self._characters
        self._parser.EntityDeclHandler = lambda *_: self._refuse("it defines entities")
        self._parser.SkippedEntityHandler = lambda name, *_: self._refuse(f"&{name}; is not defined")

    def feed(self, block: bytes, last: bool = False) -> list[tuple[bytes, bytes]]:
        """Parse a block of the file, and return the pairs that it completes. At the end, pass b"" with
        `last`.

        Raise `UserError` for XML that is not well-formed, an unknown encoding, or a tag of more than
        `LONGEST_TAG` bytes.
        """
        self._pairs = []
        try:
            self._parser.Parse(block, last)
        except expat.ExpatError as error:
            self._refuse(expat.ErrorString(error.code), error.lineno)
        except (ValueError, LookupError) as error:  # an unknown encoding
            self._refuse(str(error))
        self._fed += len(block)
        # Expat keeps a tag until its end, so a hostile tag without an end would fill the memory.
        if self._fed - self._parser.CurrentByteIndex > LONGEST_TAG:
            self._refuse(f"a tag is longer than {LONGEST_TAG:,} bytes")
        return self._pairs

    def _refuse(self, reason: str, line: int = 0) -> None:
        line = line or self._parser.CurrentLineNumber
        raise UserError(f"{self._path} line {line:,}: {reason}. It can't be read as a translation memory.")

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        """Begin an element. Raise `UserError` if the first one is not <tmx>, or the nesting is deeper than
        `MAX_DEPTH`."""
        self._depth += 1
        if self._depth > MAX_DEPTH:
            self._refuse(f"elements are nested more than {MAX_DEPTH} deep")
        if self._depth == 1 and name != "tmx":
            self._refuse(f"it begins with <{name[:50]}>, not <tmx>")
        if self._text is not None:
            self._native += self._native > 0 or name in NATIVE
        elif name == "seg" and self._sides:
            self._text, self._length = [], 0
        elif name == "tuv":
            language = attributes.get("xml:lang") or attributes.get("lang", "")
            if len(self.languages) < MAX_LISTED:
                self.languages.add(language)
            self._sides = [side for side, lang in self._langs.items() if _fits(language, lang)]
        elif name == "tu":
            self._unit = {}

    def _end(self, name: str) -> None:
        """End an element. The first segment of a side is stored as one line. If a unit has both sides, its
        pair is complete."""
        self._depth -= 1
        if self._native:
            self._native -= 1
        elif name == "seg" and self._text is not None:
            # A segment may contain line breaks, a pair must not.
            text = b" ".join("".join(self._text).encode().split())
            for side in self._sides:
                self._unit.setdefault(side, text)
            self._text = None
        elif name == "tuv":
            self._sides = []
        elif name == "tu" and len(self._unit) == len(self._langs):
            self.count += 1
            self._pairs.append((self._unit["source"], self._unit["target"]))

    def _characters(self, text: str) -> None:
        """Add text to the current segment, but not the text of `NATIVE` elements. Raise `UserError` if it has
        more than `LONGEST_LINE` characters."""
        if self._text is not None and not self._native:
            self._length += len(text)
            if self._length > LONGEST_LINE:
                self._refuse(f"a segment has more than {LONGEST_LINE:,} characters")
            self._text.append(text)
