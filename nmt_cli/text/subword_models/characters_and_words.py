"""The two simplest subword models: a piece for each character, and a piece for each word."""

from collections.abc import Sequence
from itertools import repeat

from nmt_cli.text.subword_models.subwords import BYTES, UNKNOWN_PIECE, UNKNOWN_TEXT, decoded


class Characters:
    """A subword model with a piece for each character of an alphabet, which may include the space.

    With byte fallback, characters outside of the alphabet are spelt in bytes. The 256 pieces for bytes have
    the lowest numbers.
    """

    def __init__(self, alphabet: str, byte_fallback: bool = False) -> None:
        self._bytes = len(BYTES) if byte_fallback else 0
        self._alphabet = alphabet
        self._numbers = {character: i for i, character in enumerate(alphabet, start=self._bytes)}
        self.entries: Sequence[str] = [*BYTES[: self._bytes], *alphabet]

    def encode(self, text: str) -> list[int]:
        """Return the number of each character's piece. A character outside of the alphabet becomes
        `UNKNOWN_PIECE`, or its bytes with byte fallback."""
        if not self._bytes:
            # A loop takes a fifth longer, and this is most of the work of a character model.
            return list(map(self._numbers.get, text, repeat(UNKNOWN_PIECE)))
        pieces: list[int] = []
        for character in text:
            number = self._numbers.get(character)
            pieces += character.encode() if number is None else [number]
        return pieces

    def decode(self, pieces: Sequence[int]) -> str:
        """Return the text of pieces, given by their numbers. A number that no piece has becomes
        `UNKNOWN_TEXT`."""
        return decoded(pieces, self._bytes, self.entries, UNKNOWN_TEXT)

    def files(self) -> dict[str, bytes]:
        """Return the content of the alphabet file by its file ending."""
        return {"characters.txt": self._alphabet.encode()}


class Words:
    """A subword model with a piece for each word of a list.

    With byte fallback, other words are spelt in bytes, followed by a piece that marks the end of the word.
    The 256 pieces for bytes and this piece have the lowest numbers.
    """

    def __init__(self, words: Sequence[str], byte_fallback: bool = False) -> None:
        self._bytes = len(BYTES) if byte_fallback else 0
        self._words = words
        self.entries: Sequence[str] = [*BYTES, "", *words] if byte_fallback else words
        self._texts = [f"{entry} " for entry in self.entries]
        self._numbers = {word: i for i, word in enumerate(words, start=len(self.entries) - len(words))}

    def encode(self, text: str) -> list[int]:
        """Return the number of each word's piece. A word that is not in the list becomes `UNKNOWN_PIECE`.
        With byte fallback, it becomes its bytes and the piece for the end of a word."""
        if not self._bytes:
            return list(map(self._numbers.get, text.split(), repeat(UNKNOWN_PIECE)))
        word_end = self._bytes
        pieces: list[int] = []
        for word in text.split():
            number = self._numbers.get(word)
            pieces += [*word.encode(), word_end] if number is None else [number]
        return pieces

    def decode(self, pieces: Sequence[int]) -> str:
        """Return the text of pieces, given by their numbers. A number that no piece has becomes the word
        `UNKNOWN_TEXT`."""
        return decoded(pieces, self._bytes, self._texts, f"{UNKNOWN_TEXT} ").removesuffix(" ")

    def files(self) -> dict[str, bytes]:
        """Return the list of words, one a line, by the ending of its file."""
        return {"words.txt": "".join(f"{word}\n" for word in self._words).encode()}
