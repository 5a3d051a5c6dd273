"""The interface of all subword models: text to pieces, which each model numbers from 0, and back."""

from collections.abc import Sequence
from typing import Protocol

UNKNOWN_PIECE = -1
"""The number of text without a piece."""

UNKNOWN_TEXT = "\u2047"
"""The text of an unknown piece."""

LONGEST_WORD = 200
"""Maximum characters of a word that is merged as a whole. The time for merging is quadratic in the length."""

BYTES = tuple(f"<0x{byte:02X}>" for byte in range(256))
"""Entries of the pieces of byte fallback. Piece N is byte N."""


class Subwords(Protocol):
    """A subword model. Its text is prepared: words with single spaces between words."""

    @property
    def entries(self) -> Sequence[str | None]:
        """The vocabulary entry of each piece by its number. None for a special token or an unused number."""

    def encode(self, text: str) -> list[int]:
        """Return the numbers of the pieces of prepared `text`. `UNKNOWN_PIECE` is text without a piece."""

    def decode(self, pieces: Sequence[int]) -> str:
        """Return the text of `pieces`, given as numbers. A number without a piece becomes `UNKNOWN_TEXT`."""

    def files(self) -> dict[str, bytes]:
        """Return the content of each file of the model. The keys are file endings."""


def decoded(pieces: Sequence[int], byte_pieces: int, texts: Sequence[str], unknown: str) -> str:
    """Return the joined text of `pieces`. A number below `byte_pieces` is a byte. Any other is itself the
    index in `texts`, or `unknown` if out of range. Invalid UTF-8 becomes U+FFFD."""
    # Decoded at the end, because several bytes may form one character.
    text = bytearray()
    for piece in pieces:
        if 0 <= piece < byte_pieces:
            text.append(piece)
        else:
            text += (texts[piece] if 0 <= piece < len(texts) else unknown).encode()
    return text.decode(errors="replace")
