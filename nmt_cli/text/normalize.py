"""Normalisation of raw text. Applying it twice gives the same result as once."""

import re
import unicodedata

import regex

from nmt_cli.text.config import TextConfig

SPACE_MARK = "\u2581"
"""The character that SentencePiece writes for a space."""

CONTROLS = re.compile(r"[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f]")
"""Control characters other than whitespace."""

LONG = 1000
"""Minimum length of a text whose runs of marks are interrupted. Unicode sorts a run in quadratic time."""

MARKS_IN_A_ROW = regex.compile(
    r"((?&mark){30})(?=(?&mark))(?(DEFINE)(?<mark>[\p{M}--\u034f]))", regex.VERSION1
)
JOINER = "\u034f"
"""The combining grapheme joiner, inserted after 30 marks in a row, as in Unicode's stream-safe format."""

ZERO_WIDTH = re.compile(r"[\u00ad\u180e\u200b-\u200f\u202a-\u202e\u2060-\u2064\u2066-\u2069\ufeff]")

QUOTES = dict.fromkeys(map(ord, "«»“”„‟"), '"') | dict.fromkeys(map(ord, "‹›‘’‚‛´`"), "'")

PUNCTUATION = (
    dict.fromkeys(map(ord, "‐‑‒–—―−"), "-")
    | {ord("…"): "..."}
    | {code: chr(code - 0xFEE0) for code in range(0xFF01, 0xFF5F) if not chr(code - 0xFEE0).isalnum()}
)


class Normalizer:
    """A function that applies a `TextConfig`. Words in its result are separated by single spaces."""

    def __init__(self, config: TextConfig, fold_space_mark: bool) -> None:
        """Keep the settings. With `fold_space_mark`, U+2581 counts as a space, as SentencePiece requires."""
        self._config = config
        self._fold_space_mark = fold_space_mark
        self._table = dict(QUOTES) if config.quotes else {}
        if config.punctuation:
            self._table |= {code: text.translate(self._table) for code, text in PUNCTUATION.items()}

    def __call__(self, text: str) -> str:
        """Return `text` with all settings except `words` applied. Remove control characters, and whitespace
        at both ends. Replace each run of whitespace by one space."""
        text = CONTROLS.sub("", text)
        # Only these two settings change ASCII, and most lines of some corpora are ASCII.
        if not text.isascii() or self._config.lowercase or self._table:
            text = self._rewritten(text)
        return " ".join(text.split())

    def _rewritten(self, text: str) -> str:
        """Apply `zero_width`, `unicode`, `lowercase`, and then `quotes` and `punctuation`. Apply `unicode`
        again after each later change. Replace U+2581 by a space if `fold_space_mark` was set."""
        if self._config.zero_width == "remove":
            text = ZERO_WIDTH.sub("", text)
        text = self._composed(text)
        if self._config.lowercase:
            text = self._composed(text.lower())
        if self._table:
            text = self._composed(text.translate(self._table))
        return text.replace(SPACE_MARK, " ") if self._fold_space_mark else text

    def _composed(self, text: str) -> str:
        """Return `text` in the Unicode form of the settings, where "none" changes nothing. In a text of over
        `LONG` characters, first interrupt runs of marks."""
        # Only in long lines, so that ordinary lines never change.
        if len(text) > LONG:
            text = interrupt_marks(text)
        form = self._config.unicode
        return text if form == "none" else unicodedata.normalize("NFC" if form == "nfc" else "NFKC", text)


def interrupt_marks(text: str) -> str:
    """Return `text` with `JOINER` after each 30 combining marks in a row."""
    interrupted: str = MARKS_IN_A_ROW.sub(rf"\1{JOINER}", text)
    return interrupted
