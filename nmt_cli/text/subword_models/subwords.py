"""The interface of all subword models.

A subword model cuts text into pieces and joins pieces to text. It numbers its pieces from 0. These numbers
are independent of the ids in a vocabulary. `Numbering` in `vocabulary.py` maps one to the other.
"""

from collections.abc import Sequence
from typing import Protocol

UNKNOWN_PIECE = -1
"""The number that stands for text that has no piece."""

UNKNOWN_TEXT = "\u2047"
"""The text that is decoded from an unknown piece."""

LONGEST_WORD = 200
"""The maximum length, in characters, of a word to which merges are applied. The time for merging grows with
the square of the length."""

BYTES = tuple(f"<0x{byte:02X}>" for byte in range(256))
"""The names of the 256 pieces for single bytes, with which byte fallback spells unknown characters. Piece N
is byte N."""


class Subwords(Protocol):
    """A subword model. It expects prepared text: normalised words with single spaces in between."""

    @property
    def entries(self) -> Sequence[str | None]:
        """The text of each piece in the vocabulary, in the order of the numbers. None for a special token or
        an unused number, which get no entry."""

    def encode(self, text: str) -> list[int]:
        """Cut prepared text into pieces, and return their numbers. Text that has no piece becomes
        `UNKNOWN_PIECE`."""

    def decode(self, pieces: Sequence[int]) -> str:
        """Return the text of pieces, given by their numbers. A number that no piece has becomes
        `UNKNOWN_TEXT`."""

    def files(self) -> dict[str, bytes]:
        """Return the content of each file of the model by the ending of its name, such as "model"."""


def decoded(pieces: Sequence[int], byte_pieces: int, texts: Sequence[str], unknown: str) -> str:
    """Join the texts of pieces that may include bytes.

    - `pieces`: the numbers of the pieces.
    - `byte_pieces`: the number of pieces for bytes, 256 or 0. Piece N below it is byte N.
    - `texts`: the text of each piece by number. Texts of pieces for bytes are not used.
    - `unknown`: the text for a number that is out of range.

    Bytes that are not valid UTF-8 become U+FFFD.
    """
    # Decoded at the end, because several bytes may form one character.
    text = bytearray()
    for piece in pieces:
        if 0 <= piece < byte_pieces:
            text.append(piece)
        else:
            text += (texts[piece] if 0 <= piece < len(texts) else unknown).encode()
    return text.decode(errors="replace")
