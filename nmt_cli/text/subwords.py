"""What every subword model offers, and the numbering that all of them share.

A vocabulary is: the marks, the symbols asked for by name, the entries of the subword model, and unused
entries up to a multiple of 8. Text never turns into a mark, whatever is written in it.
"""

from collections.abc import Sequence
from typing import Protocol

END = 0
"""Ends every sentence, and starts the target side's input."""

UNKNOWN = 1

MARKS = ("</s>", "<unk>")

UNKNOWN_TEXT = "\u2047"
"""How an unknown shows when ids become text."""

BYTES = tuple(f"<0x{byte:02X}>" for byte in range(256))


class Subwords(Protocol):
    """A subword model: prepared text (words with single blanks between) to ids and back."""

    @property
    def entries(self) -> Sequence[str]:
        """How its entries are shown, in the order of their ids."""

    def encode(self, text: str) -> list[int]:
        """The ids of `text`, without end mark."""

    def decode(self, ids: Sequence[int]) -> str:
        """The text of `ids`, which hold no marks but the unknown one."""

    def files(self) -> dict[str, bytes]:
        """What to keep on disk, by file ending."""


def spelt(text: str, first_byte: int) -> list[int]:
    """The ids of the bytes of `text`."""
    return [first_byte + byte for byte in text.encode()]


def padded_size(entries: int) -> int:
    """The number of entries of a vocabulary, rounded up to a multiple of 8."""
    return -(-entries // 8) * 8
