"""Input that the model was not made for: tokenised, full of unknowns, in another language, not UTF-8."""

import re
from collections.abc import Iterable, Sequence

from nmt_cli.corpus.files import GZIP_MARK, UTF16_MARKS
from nmt_cli.text.config import Kind
from nmt_cli.text.languages.guess import LanguageGuess
from nmt_cli.text.normalize import BLANK_MARK
from nmt_cli.text.vocabulary import Vocabulary
from nmt_cli.translation.checks.notes import Noted

JOINER = "@@"
SIGNS = {
    JOINER: re.compile(r"\S@@ \S"),
    BLANK_MARK: re.compile(BLANK_MARK),
    "&apos;": re.compile("&(?:apos|quot|amp|lt|gt|#91|#93|#124);"),
}
"""Signs that a text is tokenised already, and where each is in it: subword-nmt, SentencePiece, Moses."""

TEST_SET = re.compile(rb"\s*<(srcset|refset|tstset|doc|dataset|!DOCTYPE|\?xml)\b", re.IGNORECASE)

FIRST_LINES = 1000
"""Lines in which unknowns are looked for."""

MOST_UNKNOWN = 0.1
"""Share of the pieces that may be unknown without a warning."""

FEWEST_PIECES = 200
"""The share is taken of at least so many pieces, so that a strange name in the first line is no warning."""


class OddInput:
    """Looks at every line in its order, and warns at most once of each kind of oddity."""

    def __init__(self, kind: Kind, vocabulary: Vocabulary, lang: str = "") -> None:
        """`kind`, `vocabulary` and `lang` are those of the model's source side."""
        self._lang = lang
        self._guess: LanguageGuess | None = LanguageGuess(lang)
        trained_on = _signs_in(kind, vocabulary.entries)
        self._signs = {sign: pattern for sign, pattern in SIGNS.items() if sign not in trained_on}
        self._mark = vocabulary.unknown
        self._lines = self._pieces = self._unknown = self._first_unknown = 0
        self._invalid = Noted()
        self._foreign: str | None = None

    def text(self, number: int, raw: bytes) -> str:
        """Line `number` as text; bytes that are not UTF-8 are replaced, and the line is counted."""
        if number == 1:
            self._foreign = _foreign(raw)
        try:
            return raw.decode()
        except UnicodeDecodeError:
            self._invalid.add(number)
            return raw.decode(errors="replace")

    def warning(self, number: int, raw: str, ids: Sequence[int]) -> str | None:
        """A warning about line `number`, given as raw text and as ids; None nearly always."""
        foreign, self._foreign = self._foreign, None
        odd = foreign or self._tokenized(number, raw) or self._unknowns(number, ids)
        return odd or self._other_language(number, raw)

    def report(self) -> str | None:
        """What to tell the user at the end."""
        return f"{self._invalid}: bytes that are not UTF-8 became U+FFFD" if self._invalid.count else None

    def _tokenized(self, number: int, raw: str) -> str | None:
        sign = next((sign for sign, pattern in self._signs.items() if pattern.search(raw)), None)
        if sign is None:
            return None
        # Said once: no more signs are looked for.
        self._signs = {}
        shown = "U+2581" if sign == BLANK_MARK else f'"{sign}" or the like'
        return (
            f"line {number:,} holds {shown}: the input looks tokenised already, but the model was not "
            "trained on such text; give it plain text."
        )

    def _other_language(self, number: int, raw: str) -> str | None:
        other = self._guess.other(raw) if self._guess else None
        if other or number == FIRST_LINES:
            self._guess = None
        if not other:
            return None
        return (
            f"the input up to line {number:,} looks like language {other}, but the model translates from "
            f"{self._lang}; is it the right file, and the right model?"
        )

    def _unknowns(self, number: int, ids: Sequence[int]) -> str | None:
        if self._lines == FIRST_LINES:
            return None
        self._lines += 1
        self._pieces += len(ids)
        if not (unknown := ids.count(self._mark)):
            return None
        self._unknown += unknown
        self._first_unknown = self._first_unknown or number
        if self._unknown <= MOST_UNKNOWN * max(self._pieces, FEWEST_PIECES):
            return None
        self._lines = FIRST_LINES
        return (
            f"{self._unknown / self._pieces:.0%} of the input up to line {number:,} is unknown to the model, "
            f"from line {self._first_unknown:,} on; is it in the language and script that the model "
            "translates from?"
        )


def _foreign(first: bytes) -> str | None:
    """A warning if an input whose first line is `first` is UTF-16 or compressed; None if it looks like
    text."""
    if first.startswith(UTF16_MARKS):
        return "the input looks like UTF-16; turn it into UTF-8 first (iconv -f UTF-16 -t UTF-8)."
    if first.startswith(GZIP_MARK):
        return "the input looks packed; unpack it first (gzip -dc), or name the file with --input."
    if TEST_SET.match(first):
        return "the input looks like a WMT test set; name the file, ending in .sgm or .xml, with --input."
    return None


def _signs_in(kind: Kind, entries: Iterable[str]) -> set[str]:
    """The signs that the training text had, by what is in the vocabulary; they are not odd in the input.

    The single characters of char can't tell, nor can a unigram model's pieces about joiners.
    """
    found = set()
    for entry in entries:
        # Every entry of bpe that does not end a word is shown with a joiner, but none is a joiner itself.
        if entry == JOINER or (kind != "bpe" and entry.endswith(JOINER)):
            found.add(JOINER)
        if BLANK_MARK in entry and kind != "sentencepiece":
            found.add(BLANK_MARK)
        if entry in ("apos", "quot") or "apos;" in entry or "quot;" in entry:
            found.add("&apos;")
    return found
