"""What every subword model offers: text to pieces, numbered in the model's own way, and back."""

from collections.abc import Sequence
from typing import Protocol

UNKNOWN_PIECE = -1
"""The number that stands for text without a piece."""

UNKNOWN_TEXT = "\u2047"
"""How an unknown shows when pieces become text."""

LONGEST_WORD = 200
"""Longer words are not merged as a whole, since that takes time quadratic in their length."""

BYTES = tuple(f"<0x{byte:02X}>" for byte in range(256))


class Subwords(Protocol):
    """A subword model: prepared text (words with single blanks between) to pieces and back."""

    @property
    def entries(self) -> Sequence[str | None]:
        """How each piece is shown, by number; None for a number that is not a piece of text, such as a
        mark."""

    def encode(self, text: str) -> list[int]:
        """The pieces of `text`."""

    def decode(self, pieces: Sequence[int]) -> str:
        """The text of `pieces`; a number that the model does not have becomes `UNKNOWN_TEXT`."""

    def files(self) -> dict[str, bytes]:
        """The content of the files that the model is kept in, by file ending."""
