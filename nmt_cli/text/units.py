"""Characters and words as the units of a vocabulary."""

from collections.abc import Iterable, Sequence

from nmt_cli.text.subwords import BYTES, UNKNOWN, UNKNOWN_TEXT, spelt


class Characters:
    """One entry for each character of an alphabet, the blank among them."""

    def __init__(self, alphabet: str, first: int, byte_fallback: bool = False) -> None:
        """`first` is the id of the first entry."""
        self._first = first
        self._bytes = len(BYTES) if byte_fallback else 0
        self._alphabet = alphabet
        self._ids = {character: i for i, character in enumerate(alphabet, start=first + self._bytes)}
        self.entries = [*BYTES[: self._bytes], *alphabet]

    def encode(self, text: str) -> list[int]:
        """See `Subwords`."""
        if not self._bytes:
            return [self._ids.get(character, UNKNOWN) for character in text]
        ids: list[int] = []
        for character in text:
            known = self._ids.get(character)
            ids += spelt(character, self._first) if known is None else [known]
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        """See `Subwords`."""
        return _text(ids, self._first, self._bytes, self.entries, after="")

    def files(self) -> dict[str, bytes]:
        """See `Subwords`."""
        return {"characters.txt": self._alphabet.encode()}


class Words:
    """One entry for each word; others are unknown, or spelt in bytes with an entry that ends the word."""

    def __init__(self, words: Sequence[str], first: int, byte_fallback: bool = False) -> None:
        """`first` is the id of the first entry."""
        self._first = first
        self._bytes = len(BYTES) if byte_fallback else 0
        self._words = words
        head = [*BYTES, ""] if byte_fallback else []
        self._word_end = first + len(BYTES)
        self._ids = {word: i for i, word in enumerate(words, start=first + len(head))}
        self.entries = [*head, *words]

    def encode(self, text: str) -> list[int]:
        """See `Subwords`."""
        if not self._bytes:
            return [self._ids.get(word, UNKNOWN) for word in text.split()]
        ids: list[int] = []
        for word in text.split():
            known = self._ids.get(word)
            ids += [*spelt(word, self._first), self._word_end] if known is None else [known]
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        """See `Subwords`."""
        return _text(ids, self._first, self._bytes, self.entries, after=" ").removesuffix(" ")

    def files(self) -> dict[str, bytes]:
        """See `Subwords`."""
        return {"words.txt": "".join(f"{word}\n" for word in self._words).encode()}


def _text(ids: Iterable[int], first: int, byte_entries: int, entries: Sequence[str], after: str) -> str:
    """What `ids` stand for, with `after` behind each that is no byte."""
    text = bytearray()
    for i in ids:
        place = i - first
        if 0 <= place < byte_entries:
            text.append(place)
        else:
            known = 0 <= place < len(entries)
            text += ((entries[place] if known else UNKNOWN_TEXT) + after).encode()
    return text.decode(errors="replace")
