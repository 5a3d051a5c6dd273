"""Byte-pair encoding of words as subword-nmt applies it; pieces can't be mistaken for text.

In subword-nmt's files `</w>` marks a piece that ends its word, and in its output `piece@@` one that does not.
Here a piece is a pair: its surface, and whether it ends its word. So `@@` and `</w>` in a text are just text.
"""

from collections.abc import Iterable, Iterator, Sequence

from subword_nmt.apply_bpe import check_vocab_and_split
from subword_nmt.apply_bpe import encode as apply_merges

from nmt_cli.errors import UserError
from nmt_cli.text.subword_models.subwords import BYTES, LONGEST_WORD, UNKNOWN_PIECE, UNKNOWN_TEXT

HEADER = "#version: 0.2"
WORD_END = "</w>"
MOST_CACHED = 200_000
"""Words whose pieces are kept: the first that come, among which the frequent ones are."""

LONGEST_CACHED = 32
"""Longer words hardly come twice, but in scripts without spaces each sentence is one."""

SEPARATOR = " "
"""What is used in place of `@@` in calls of subword-nmt, as it can't be part of a word."""

Merge = tuple[str, str]
Piece = tuple[str, bool]
"""A surface, and whether it ends its word."""


class Bpe:
    """Merges over an alphabet; see `Subwords`. Each character of the alphabet is two pieces: inside a word,
    at its end."""

    def __init__(
        self, codes: str, alphabet: str, byte_fallback: bool = False, too_rare: Iterable[int] = ()
    ) -> None:
        """`codes` is the content of a subword-nmt codes file; `too_rare` are numbers of pieces to split
        further."""
        self._codes = codes
        self._alphabet = alphabet
        self._bytes = len(BYTES) if byte_fallback else 0
        # Bytes don't tell where a word ends: a word spelt in bytes gets an empty piece that does.
        self._pieces: list[Piece] = [("", True)] if byte_fallback else []
        merges = parse_codes(codes)
        self._pieces += pieces_of(merges, alphabet)
        self._numbers = {piece: i for i, piece in enumerate(self._pieces, start=self._bytes)}
        # Reversed, so that of a merge which codes have twice the first one counts.
        self._ranks = {merge: rank for rank, merge in reversed(list(enumerate(merges)))}
        self._parts = {left + right: (left, right) for left, right in self._ranks}
        self._common = self._without(set(too_rare))
        self._cache: dict[str, list[int]] = {}
        shown = [surface if final else f"{surface}@@" for surface, final in self._pieces]
        self.entries: Sequence[str] = [*BYTES[: self._bytes], *shown]

    def encode(self, text: str) -> list[int]:
        """See `Subwords`."""
        pieces: list[int] = []
        cache = self._cache
        for word in self.words(text):
            found = cache.get(word)
            if found is None:
                found = self._word(word)
                if len(cache) < MOST_CACHED and len(word) <= LONGEST_CACHED:
                    cache[word] = found
            pieces += found
        return pieces

    def decode(self, pieces: Sequence[int]) -> str:
        """See `Subwords`."""
        # Bytes until all pieces are there: several may spell one character.
        text = bytearray()
        for piece in pieces:
            if 0 <= piece < self._bytes:
                text.append(piece)
                continue
            known = 0 <= piece - self._bytes < len(self._pieces)
            surface, final = self._pieces[piece - self._bytes] if known else (UNKNOWN_TEXT, True)
            text += surface.encode()
            if final:
                text += b" "
        return text.decode(errors="replace").removesuffix(" ")

    def files(self) -> dict[str, bytes]:
        """See `Subwords`."""
        return {"codes": self._codes.encode(), "characters.txt": self._alphabet.encode()}

    def words(self, text: str) -> list[str]:
        """See `Merging`, as for the next three."""
        return text.split()

    def parts(self, word: str) -> tuple[str, ...]:
        """As in codes, the last part ends in `WORD_END`."""
        return (*word[:-1], word[-1] + WORD_END)

    def rank(self, left: str, right: str) -> int | None:
        """The number of its line in the codes."""
        return self._ranks.get((left, right))

    def numbers(self, parts: Sequence[str]) -> list[int]:
        """The pieces of a word in these parts; of too rare ones, what they are split into."""
        return self._numbers_of(self._common_ones((*parts[:-1], parts[-1].removesuffix(WORD_END))))

    def _numbers_of(self, surfaces: Sequence[str]) -> list[int]:
        """The numbers of the pieces of one word, given by surface; a surface that is no piece is spelt in
        characters."""
        pieces: list[int] = []
        for number, surface in enumerate(surfaces, start=1):
            final = number == len(surfaces)
            known = self._numbers.get((surface, final))
            pieces += [known] if known is not None else self._characters(surface, final)
        return pieces

    def _word(self, word: str) -> list[int]:
        return self._numbers_of(word if len(word) > LONGEST_WORD else self._merged(word))

    def _merged(self, word: str) -> Sequence[str]:
        # With an empty cache each time: subword-nmt's own would grow without end, and `encode` has one.
        surfaces: Sequence[str] = apply_merges(
            word, self._ranks, self._parts, self._common, SEPARATOR, (0, 2), cache={}
        )
        return surfaces

    def _common_ones(self, surfaces: Sequence[str]) -> Sequence[str]:
        """The surfaces of one word, with those of too rare pieces split further."""
        if self._common is None:
            return surfaces
        return list(check_vocab_and_split(surfaces, self._parts, self._common, SEPARATOR))

    def _characters(self, surface: str, final: bool) -> list[int]:
        """The numbers of a surface's characters; those that are no pieces become bytes, or unknown without
        fallback."""
        pieces: list[int] = []
        for number, character in enumerate(surface, start=1):
            ends = final and number == len(surface)
            known = self._numbers.get((character, ends))
            if known is not None:
                pieces.append(known)
            elif not self._bytes:
                pieces.append(UNKNOWN_PIECE)
            else:
                pieces += [*character.encode(), *([self._numbers["", True]] if ends else [])]
        return pieces

    def _without(self, too_rare: set[int]) -> set[str] | None:
        """All pieces but `too_rare`, as subword-nmt's vocabulary filter takes them; None for no filter."""
        if not too_rare:
            return None
        common = (piece for piece, i in self._numbers.items() if i not in too_rare)
        # An empty set would mean that there is no filter.
        return {surface if final else surface + SEPARATOR for surface, final in common} | {SEPARATOR}


def cut_codes(codes: str, alphabet: str, room: int) -> str:
    """The first merges of `codes`, as many as give at most `room` pieces besides those of `alphabet`."""
    lines = codes.splitlines()
    seen = set(pieces_of((), alphabet))
    for number, piece in enumerate(_results(parse_codes(codes)), start=1):
        if piece not in seen and not room:
            return "\n".join(lines[:number]) + "\n"
        room -= piece not in seen
        seen.add(piece)
    return codes


def parse_codes(codes: str) -> list[Merge]:
    """The merges of a codes file, in order."""
    header, *lines = codes.rstrip("\n").split("\n")
    if header.split() != HEADER.split():
        raise UserError(f"the codes must start with '{HEADER}'; learn them with subword-nmt 0.2 or newer.")
    merges = []
    for number, line in enumerate(lines, start=2):
        left, blank, right = line.rstrip("\r ").partition(" ")
        if not (left and blank and right) or " " in right:
            raise UserError(
                f"line {number} of the codes is {line!r}; each must be two parts with a blank between."
            )
        merges.append((left, right))
    return merges


def pieces_of(merges: Iterable[Merge], alphabet: str) -> list[Piece]:
    """Every piece that `merges` over `alphabet` can give, once each, in a fixed order."""
    single = [(character, final) for character in alphabet for final in (False, True)]
    return list(dict.fromkeys([*single, *_results(merges)]))


def characters_of(merges: Iterable[Merge]) -> set[str]:
    """The characters that occur in merges."""
    return {character for surface, _ in _results(merges) for character in surface}


def _results(merges: Iterable[Merge]) -> Iterator[Piece]:
    for left, right in merges:
        # Codes of version 0.2 join the mark to a character, so by itself it is a text's own `</w>`.
        final = right.endswith(WORD_END) and right != WORD_END
        yield left + right.removesuffix(WORD_END) if final else left + right, final
