"""Subword models of the simplest kinds: every character, or every word, is a piece."""

from collections.abc import Iterable, Sequence
from itertools import repeat

from nmt_cli.text.subword_models.subwords import BYTES, UNKNOWN_PIECE, UNKNOWN_TEXT


class Characters:
    """A piece for each character of an alphabet, blanks included; with byte fallback, 256 bytes come
    before."""

    def __init__(self, alphabet: str, byte_fallback: bool = False) -> None:
        self._bytes = len(BYTES) if byte_fallback else 0
        self._alphabet = alphabet
        self._numbers = {character: i for i, character in enumerate(alphabet, start=self._bytes)}
        self.entries: Sequence[str] = [*BYTES[: self._bytes], *alphabet]

    def encode(self, text: str) -> list[int]:
        """See `Subwords`."""
        if not self._bytes:
            # `map` and not a loop, which takes a fifth longer, and is most of the work where pieces are
            # characters.
            return list(map(self._numbers.get, text, repeat(UNKNOWN_PIECE)))
        pieces: list[int] = []
        for character in text:
            known = self._numbers.get(character)
            pieces += character.encode() if known is None else [known]
        return pieces

    def decode(self, pieces: Sequence[int]) -> str:
        """See `Subwords`."""
        return _text(pieces, self._bytes, self.entries, after="")

    def files(self) -> dict[str, bytes]:
        """See `Subwords`."""
        return {"characters.txt": self._alphabet.encode()}


class Words:
    """A piece for each known word; others are unknown, or with byte fallback bytes and a piece that ends
    them."""

    def __init__(self, words: Sequence[str], byte_fallback: bool = False) -> None:
        self._bytes = len(BYTES) if byte_fallback else 0
        self._words = words
        head = [*BYTES, ""] if byte_fallback else []
        self._numbers = {word: i for i, word in enumerate(words, start=len(head))}
        self.entries: Sequence[str] = [*head, *words]

    def encode(self, text: str) -> list[int]:
        """See `Subwords`."""
        if not self._bytes:
            return list(map(self._numbers.get, text.split(), repeat(UNKNOWN_PIECE)))
        word_end = self._bytes
        pieces: list[int] = []
        for word in text.split():
            known = self._numbers.get(word)
            pieces += [*word.encode(), word_end] if known is None else [known]
        return pieces

    def decode(self, pieces: Sequence[int]) -> str:
        """See `Subwords`."""
        return _text(pieces, self._bytes, self.entries, after=" ").removesuffix(" ")

    def files(self) -> dict[str, bytes]:
        """See `Subwords`."""
        return {"words.txt": "".join(f"{word}\n" for word in self._words).encode()}


def _text(pieces: Iterable[int], byte_pieces: int, entries: Sequence[str], after: str) -> str:
    """The text of `pieces`, with `after` behind each that is no byte; bytes are numbered from 0."""
    # Bytes until all pieces are there: several may spell one character.
    text = bytearray()
    for piece in pieces:
        if 0 <= piece < byte_pieces:
            text.append(piece)
        else:
            known = 0 <= piece < len(entries)
            text += ((entries[piece] if known else UNKNOWN_TEXT) + after).encode()
    return text.decode(errors="replace")
