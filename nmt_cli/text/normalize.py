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
"""The minimum length, in characters, of a text in which runs of combining marks are interrupted. Unicode
normalisation sorts the marks of a run in quadratic time: 200 kB of marks took minutes."""

MARKS_IN_A_ROW = regex.compile(
    r"((?&mark){30})(?=(?&mark))(?(DEFINE)(?<mark>[\p{M}--\u034f]))", regex.VERSION1
)
JOINER = "\u034f"
"""The combining grapheme joiner, which is put after 30 marks in a row. Unicode's stream-safe text format does
the same."""

ZERO_WIDTH = re.compile(r"[\u00ad\u180e\u200b-\u200f\u202a-\u202e\u2060-\u2064\u2066-\u2069\ufeff]")

QUOTES = dict.fromkeys(map(ord, "«»“”„‟"), '"') | dict.fromkeys(map(ord, "‹›‘’‚‛´`"), "'")

PUNCTUATION = (
    dict.fromkeys(map(ord, "‐‑‒–—―−"), "-")
    | {ord("…"): "..."}
    | {code: chr(code - 0xFEE0) for code in range(0xFF01, 0xFF5F) if not chr(code - 0xFEE0).isalnum()}
)


class Normalizer:
    """A function that normalises text by a `TextConfig`. Its result has single spaces between words, and none
    at the ends."""

    def __init__(self, config: TextConfig, fold_space_mark: bool) -> None:
        """Prepare the function for `config`. With `fold_space_mark`, U+2581 becomes a space, because
        SentencePiece cannot tell them apart."""
        self._config = config
        self._fold_space_mark = fold_space_mark
        self._table = dict(QUOTES) if config.quotes else {}
        if config.punctuation:
            self._table |= {code: text.translate(self._table) for code, text in PUNCTUATION.items()}

    def __call__(self, text: str) -> str:
        """Normalise `text` by all settings except `words`, which the tokeniser applies.

        Control characters and whitespace at both ends are always removed. Each run of whitespace becomes one
        space.
        """
        text = CONTROLS.sub("", text)
        # Only these two settings change ASCII, and most lines of some corpora are ASCII.
        if not text.isascii() or self._config.lowercase or self._table:
            text = self._rewritten(text)
        return " ".join(text.split())

    def _rewritten(self, text: str) -> str:
        """Apply all settings that can change characters, in a fixed order: zero-width characters, Unicode
        form, lower case, and then quotes and other punctuation."""
        if self._config.zero_width == "remove":
            text = ZERO_WIDTH.sub("", text)
        # The Unicode form is applied again after each change, because the new text may compose further.
        # Otherwise a second normalisation could change the result of the first.
        text = self._composed(text)
        if self._config.lowercase:
            text = self._composed(text.lower())
        if self._table:
            text = self._composed(text.translate(self._table))
        return text.replace(SPACE_MARK, " ") if self._fold_space_mark else text

    def _composed(self, text: str) -> str:
        """Return `text` in the Unicode form of the settings. "none" changes nothing. In a text that is longer
        than `LONG`, runs of marks are interrupted first, whatever the form."""
        # Only in long lines, so that ordinary lines never change.
        if len(text) > LONG:
            text = interrupt_marks(text)
        form = self._config.unicode
        return text if form == "none" else unicodedata.normalize("NFC" if form == "nfc" else "NFKC", text)


def interrupt_marks(text: str) -> str:
    """Return `text` with `JOINER` after each 30 combining marks in a row."""
    interrupted: str = MARKS_IN_A_ROW.sub(rf"\1{JOINER}", text)
    return interrupted
