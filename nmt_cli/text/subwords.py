"""What every subword model offers: text to pieces, by numbers of the model's own, and back."""

from collections.abc import Sequence
from typing import Protocol

UNKNOWN_PIECE = -1
"""The number of what has no piece."""

UNKNOWN_TEXT = "\u2047"
"""How an unknown shows when pieces become text."""

BYTES = tuple(f"<0x{byte:02X}>" for byte in range(256))


class Subwords(Protocol):
    """A subword model: prepared text (words with single blanks between) to pieces and back."""

    @property
    def entries(self) -> Sequence[str | None]:
        """How its pieces are shown, by number; None where text has no such piece, but is unknown."""

    def encode(self, text: str) -> list[int]:
        """The pieces of `text`."""

    def decode(self, pieces: Sequence[int]) -> str:
        """The text of `pieces`, of which those that are none of the model's show as unknown."""

    def files(self) -> dict[str, bytes]:
        """What to keep on disk, by file ending."""
