"""Byte-pair encoding of words as in subword-nmt, with pieces that cannot be confused with text.

Codes are the content of a file of merges. In codes, `</w>` ends a piece at the end of a word. In the output
of subword-nmt, `piece@@` is a piece that does not end a word. Here a piece is a pair: its surface, which is
its text, and whether it ends its word. So `@@` and `</w>` in a text are only text.
"""

from collections.abc import Iterable, Iterator, Sequence

from subword_nmt.apply_bpe import check_vocab_and_split
from subword_nmt.apply_bpe import encode as apply_merges

from nmt_cli.errors import UserError
from nmt_cli.text.subword_models.subwords import BYTES, LONGEST_WORD, UNKNOWN_PIECE, UNKNOWN_TEXT, decoded

HEADER = "#version: 0.2"
WORD_END = "</w>"
INSIDE = "@@"
"""The end of an entry for a piece that does not end its word."""

MOST_CACHED = 200_000
"""The maximum number of cached words. The first words are cached, and they include the frequent ones."""

LONGEST_CACHED = 32
"""The maximum number of characters of a cached word. Longer words rarely recur, and in scripts without spaces
each sentence would be one."""

SEPARATOR = " "
"""The separator in calls of subword-nmt, in place of `@@`. No word contains a space."""

Merge = tuple[str, str]
Piece = tuple[str, bool]
"""A surface, and whether it ends its word."""


class Bpe:
    """A subword model of BPE merges. Each character of the alphabet has two pieces: one inside a word, and
    one at its end.

    With byte fallback, other characters are spelt in bytes. The 256 pieces for bytes, and a piece for the end
    of a word in bytes, have the lowest numbers.
    """

    def __init__(
        self, codes: str, alphabet: str, byte_fallback: bool = False, too_rare: Iterable[int] = ()
    ) -> None:
        """Build the model.

        - `codes`: the content of a codes file. An invalid one raises `UserError`.
        - `alphabet`: the characters that get a piece.
        - `byte_fallback`: whether other characters are spelt in bytes.
        - `too_rare`: numbers of pieces that are replaced by smaller pieces in a segmentation.
        """
        self._codes = codes
        self._alphabet = alphabet
        self._bytes = len(BYTES) if byte_fallback else 0
        # Bytes do not mark the end of a word, so an empty piece follows a word that is spelt in bytes.
        pieces: list[Piece] = [("", True)] if byte_fallback else []
        merges = parse_codes(codes)
        # A character has two pieces. Two merges may have one result, which gets one piece.
        pieces += [(character, final) for character in alphabet for final in (False, True)]
        pieces = list(dict.fromkeys([*pieces, *_results(merges)]))
        self._numbers = {piece: i for i, piece in enumerate(pieces, start=self._bytes)}
        # Reversed, so that the first of two equal merges counts.
        self._ranks = {merge: rank for rank, merge in reversed(list(enumerate(merges)))}
        self._parts = {left + right: (left, right) for left, right in self._ranks}
        rare = set(too_rare)
        # The separator is added because an empty set would mean no filter.
        common = {SEPARATOR} | {
            surface if final else surface + SEPARATOR
            for (surface, final), number in self._numbers.items()
            if number not in rare
        }
        self._common = common if rare else None  # in the form of subword-nmt's filter
        self._cache: dict[str, list[int]] = {}
        entries = [surface if final else f"{surface}{INSIDE}" for surface, final in pieces]
        self.entries: Sequence[str] = [*BYTES[: self._bytes], *entries]
        texts = [f"{surface} " if final else surface for surface, final in pieces]
        self._texts = [*BYTES[: self._bytes], *texts]

    def encode(self, text: str) -> list[int]:
        """Return the numbers of the pieces of prepared text. An unknown character becomes `UNKNOWN_PIECE`, or
        its bytes with byte fallback."""
        pieces: list[int] = []
        cache = self._cache
        for word in self.words(text):
            numbers = cache.get(word)
            if numbers is None:
                numbers = self._word(word)
                if len(cache) < MOST_CACHED and len(word) <= LONGEST_CACHED:
                    cache[word] = numbers
            pieces += numbers
        return pieces

    def decode(self, pieces: Sequence[int]) -> str:
        """Return the text of pieces, given by their numbers. A number that no piece has becomes the word
        `UNKNOWN_TEXT`."""
        return decoded(pieces, self._bytes, self._texts, f"{UNKNOWN_TEXT} ").removesuffix(" ")

    def files(self) -> dict[str, bytes]:
        """Return the content of the codes file and of the alphabet file, by the endings of their names."""
        return {"codes": self._codes.encode(), "characters.txt": self._alphabet.encode()}

    def words(self, text: str) -> list[str]:
        """Split prepared text at spaces. BPE-dropout calls this, and the following three methods."""
        return text.split()

    def parts(self, word: str) -> tuple[str, ...]:
        """Return the characters of a word. The last one is followed by `WORD_END`, as in codes."""
        return (*word[:-1], word[-1] + WORD_END)

    def rank(self, left: str, right: str) -> int | None:
        """Return the position of a merge in the codes, or None if it is not there. Merges of lower rank are
        done first."""
        return self._ranks.get((left, right))

    def numbers(self, parts: Sequence[str]) -> list[int]:
        """Return the numbers of the pieces of a word that is cut into parts, the last with `WORD_END`. Pieces
        that are too rare are split."""
        surfaces: Sequence[str] = (*parts[:-1], parts[-1].removesuffix(WORD_END))
        if self._common is not None:
            surfaces = list(check_vocab_and_split(surfaces, self._parts, self._common, SEPARATOR))
        return self._numbers_of(surfaces)

    def _numbers_of(self, surfaces: Sequence[str]) -> list[int]:
        """Return the numbers of one word's pieces. A surface that is not a piece is spelt in characters."""
        pieces: list[int] = []
        for position, surface in enumerate(surfaces, start=1):
            final = position == len(surfaces)
            number = self._numbers.get((surface, final))
            pieces += [number] if number is not None else self._characters(surface, final)
        return pieces

    def _word(self, word: str) -> list[int]:
        """Return the numbers of a word's pieces after all merges. A word longer than `LONGEST_WORD` is spelt
        in characters."""
        if len(word) > LONGEST_WORD:
            return self._numbers_of(word)
        # With an empty cache, because subword-nmt's own grows without limit, and `encode` has one.
        return self._numbers_of(
            apply_merges(word, self._ranks, self._parts, self._common, SEPARATOR, (0, 2), cache={})
        )

    def _characters(self, surface: str, final: bool) -> list[int]:
        """Return the numbers of the pieces for the characters of a surface. `final` means that the surface
        ends its word.

        A character without a piece becomes `UNKNOWN_PIECE`. With byte fallback, it becomes its bytes, and if
        they end the word, the piece for the end of a word follows.
        """
        pieces: list[int] = []
        for position, character in enumerate(surface, start=1):
            ends = final and position == len(surface)
            number = self._numbers.get((character, ends))
            if number is not None:
                pieces.append(number)
            elif not self._bytes:
                pieces.append(UNKNOWN_PIECE)
            else:
                pieces += [*character.encode(), *([self._numbers["", True]] if ends else [])]
        return pieces


def parse_codes(codes: str) -> list[Merge]:
    """Return the merges (left, right) of codes, in order. Raise `UserError` if the first line is not
    `HEADER`, or another line does not have two parts."""
    header, *lines = codes.rstrip("\n").split("\n")
    if header.split() != HEADER.split():
        raise UserError(f"the codes must start with '{HEADER}'. Learn them with subword-nmt 0.2 or newer.")
    merges = []
    for number, line in enumerate(lines, start=2):
        left, space, right = line.rstrip("\r ").partition(" ")
        if not (left and space and right) or " " in right:
            raise UserError(
                f"line {number} of the codes is {line!r}. Each must be two parts with a space between."
            )
        merges.append((left, right))
    return merges


def characters_of(merges: Iterable[Merge]) -> set[str]:
    """Return all characters in the results of `merges`, without `WORD_END`."""
    return {character for surface, _ in _results(merges) for character in surface}


def _results(merges: Iterable[Merge]) -> Iterator[Piece]:
    """Yield the piece that results from each merge."""
    for left, right in merges:
        # Codes of version 0.2 join the mark to a character. A separate mark is `</w>` in a text.
        final = right.endswith(WORD_END) and right != WORD_END
        yield left + right.removesuffix(WORD_END) if final else left + right, final
