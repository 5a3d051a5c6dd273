"""Warnings about unsuitable input: tokenized, in another script, compressed, or not UTF-8."""

import re
from collections.abc import Iterable, Sequence

from nmt_cli.corpus.raw_files import GZIP_MARK, UTF16_MARKS
from nmt_cli.text.config import Kind
from nmt_cli.text.normalize import SPACE_MARK
from nmt_cli.text.vocabulary import Vocabulary
from nmt_cli.translation.checks.notes import Noted

JOINER = "@@"
SIGNS = {
    JOINER: re.compile(r"\S@@ \S"),
    SPACE_MARK: re.compile(SPACE_MARK),
    "&apos;": re.compile("&(?:apos|quot|amp|lt|gt|#91|#93|#124);"),
}
"""Signs of text tokenized by subword-nmt, SentencePiece and Moses, with the pattern that finds each."""

ESCAPE_IN_ENTRY = re.compile("(?:apos|quot|amp|lt|gt|#91|#93|#124);|^▁?(?:apos|quot)$")
"""An escape of Moses, or its last part, in a subword. Plain text has neither."""

TEST_SET = re.compile(rb"\s*<(srcset|refset|tstset|doc|dataset|!DOCTYPE|\?xml)\b", re.IGNORECASE)

FIRST_LINES = 1000
"""Number of lines that are searched for unknown tokens."""

MAX_UNKNOWN = 0.1
"""Fraction of unknown tokens without a warning."""

MIN_PIECES = 200
"""Minimum number of tokens for the fraction, so that a name in the first line causes no warning."""


class OddInput:
    """A check of every line of input, in order. It warns at most once about each kind of problem."""

    def __init__(self, kind: Kind, vocabulary: Vocabulary, *, escapes: bool = False) -> None:
        """Prepare the check. The arguments describe the source side of the model.

        - `kind`: the kind of subwords.
        - `escapes`: the model escapes its input itself (`text.words=moses_escaped`).
        """
        trained_on = _signs_in(kind, vocabulary.entries)
        if escapes:  # it would escape escaped text again, into &amp;apos;
            trained_on.discard("&apos;")
        self._signs = {sign: pattern for sign, pattern in SIGNS.items() if sign not in trained_on}
        self._mark = vocabulary.unknown
        self._lines = self._pieces = self._unknown = self._first_unknown = 0
        self._invalid = Noted()
        self._foreign: str | None = None

    def text(self, number: int, raw: bytes) -> str:
        """Return line `number` as text. Count lines of invalid UTF-8, which becomes U+FFFD. Check line 1."""
        if number == 1:
            self._foreign = _foreign(raw)
        try:
            return raw.decode()
        except UnicodeDecodeError:
            self._invalid.add(number)
            return raw.decode(errors="replace")

    def warning(self, number: int, raw: str, ids: Sequence[int]) -> str | None:
        """Return a warning about line `number`, or None: input in another format, tokenised text, or many
        unknown tokens. Each kind is warned of once.

        `raw` is the text of the line, and `ids` are its tokens. Call this for all lines, in order.
        """
        foreign, self._foreign = self._foreign, None
        return foreign or self._tokenized(number, raw) or self._unknowns(number, ids)

    def report(self) -> str | None:
        """Return a message about all lines with invalid UTF-8, or None, at the end of the run."""
        return f"{self._invalid}: bytes that are not UTF-8 became U+FFFD" if self._invalid.count else None

    def _tokenized(self, number: int, raw: str) -> str | None:
        """Return a warning, once, if `raw` has a sign of tokenized text that training lacked, or None."""
        sign = next((sign for sign, pattern in self._signs.items() if pattern.search(raw)), None)
        if sign is None:
            return None
        self._signs = {}  # warn only once
        shown = "U+2581" if sign == SPACE_MARK else f'"{sign}" or the like'
        return (
            f"line {number:,} contains {shown}: the input looks tokenised, but the model was not trained on "
            "tokenised text. Use plain text."
        )

    def _unknowns(self, number: int, ids: Sequence[int]) -> str | None:
        """Return a warning, once, if more than `MAX_UNKNOWN` of the tokens so far are unknown. Otherwise
        return None.

        Only the first `FIRST_LINES` lines count. With fewer than `MIN_PIECES` tokens so far, the fraction is
        of `MIN_PIECES`.
        """
        if self._lines == FIRST_LINES:
            return None
        self._lines += 1
        self._pieces += len(ids)
        if not (unknown := ids.count(self._mark)):
            return None
        self._unknown += unknown
        self._first_unknown = self._first_unknown or number
        if self._unknown <= MAX_UNKNOWN * max(self._pieces, MIN_PIECES):
            return None
        self._lines = FIRST_LINES
        return (
            f"{self._unknown / self._pieces:.0%} of the input up to line {number:,} is unknown to the model, "
            f"from line {self._first_unknown:,} on. Check that it has the language and script that the model "
            "translates from."
        )


def _foreign(first: bytes) -> str | None:
    """Return a warning if `first`, the first line, is UTF-16, zip, gzip or a WMT test set, or None."""
    if first.startswith(UTF16_MARKS):
        return "the input looks like UTF-16. Convert it to UTF-8 first: iconv -f UTF-16 -t UTF-8."
    if first.startswith(b"PK\x03\x04"):
        return "the input looks like a zip archive, such as .docx. Save it as text or HTML."
    if first.startswith(GZIP_MARK):
        return "the input looks compressed. Decompress it first (gzip -dc), or name the file with --input."
    if TEST_SET.match(first):
        return "the input looks like a WMT test set. Name the .sgm or .xml file with --input."
    return None


def _signs_in(kind: Kind, entries: Iterable[str]) -> set[str]:
    """Return which signs of tokenised text (the keys of `SIGNS`) were in the training text, judging by the
    subwords in `entries`. Input with these signs needs no warning.

    The kind "char" does not show `JOINER`, and "sentencepiece" does not show `SPACE_MARK`. A unigram model
    may not show `JOINER`.
    """
    signs = set()
    characters: set[str] = set()
    for entry in entries:
        characters.update(entry)
        # BPE marks every entry inside a word with a joiner, but has no entry that is only a joiner.
        if entry == JOINER or (kind != "bpe" and entry.endswith(JOINER)):
            signs.add(JOINER)
        if SPACE_MARK in entry and kind != "sentencepiece":
            signs.add(SPACE_MARK)
        if ESCAPE_IN_ENTRY.search(entry):
            signs.add("&apos;")
    # Single characters and small vocabularies have no such entry. But Moses leaves no quotes in a text.
    if {"&", ";"} <= characters and not {"'", '"'} & characters:
        signs.add("&apos;")
    return signs
