"""A vocabulary: what each id stands for, which ids are marks, and how pieces of text become ids and back.

It is kept as a file, an entry a line in the order of the ids. Subword models number their pieces in their own
way; a `Numbering` holds the tables between such numbers and the ids. No text becomes a mark, not even `</s>`:
a mark is no piece.
"""

from array import array
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import Any

from nmt_cli.errors import UserError
from nmt_cli.setting_values import is_unicode

NEW_MARKS = ("</s>", "<unk>")
"""The first entries of every vocabulary made here: the end mark, which is the start mark too, and the
unknown."""

MULTIPLE = 8
"""New vocabularies are filled up to a multiple of this, as matrix products of such sizes are faster."""


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """The ids of one side, or of both where they share them."""

    entries: tuple[str, ...]
    """How each id is shown; filler entries are empty."""

    end: int
    """The id that ends every sentence."""

    start: int | None
    """What the decoder is given before the first token; None for a vector of zeros instead."""

    unknown: int
    """The id of text that has no entry."""

    never: tuple[int, ...] = ()
    """Ids that search never produces, such as filler. Not the unknown mark: a setting decides about it."""

    def __post_init__(self) -> None:
        marks = {"end": [self.end], "unknown": [self.unknown], "never": self.never}
        marks["start"] = [] if self.start is None else [self.start]
        for name, ids in marks.items():
            if wrong := [i for i in ids if not 0 <= i < len(self)]:
                raise UserError(f"mark {name} is {wrong[0]}, but the vocabulary has {len(self):,} entries.")
        if not is_unicode("".join(self.entries)):
            entry = next(entry for entry in self.entries if not is_unicode(entry))
            raise UserError(f"the vocabulary has {entry!r}, which is not Unicode text; copy it again.")
        if self.end == self.unknown or {self.end, self.unknown} & {*self.never}:
            raise UserError(f"end mark {self.end} and unknown mark {self.unknown} need ids of their own.")

    def __len__(self) -> int:
        return len(self.entries)

    @property
    def marks(self) -> dict[str, Any]:
        """All fields but the entries, for JSON."""
        return {"end": self.end, "start": self.start, "unknown": self.unknown, "never": list(self.never)}

    def ended(self, tokens: Sequence[int]) -> list[int]:
        """The ids of a sentence with its end mark."""
        return [*tokens, self.end]

    def file(self) -> bytes:
        """The content of the file that it is kept in."""
        return "".join(f"{entry}\n" for entry in self.entries).encode()


def read_vocabulary(content: bytes, marks: Mapping[str, Any]) -> Vocabulary:
    """The inverse of `file` and `marks`; `UserError` where an entry stands for two ids."""
    entries = content.decode().split("\n")
    if entries.pop():
        raise UserError("the vocabulary file ends within a line; copy it again.")
    seen: set[str] = set()
    # Filler entries are all empty.
    for entry in filter(None, entries):
        if entry in seen:
            raise UserError(f"the vocabulary file has {entry!r} twice; copy it again.")
        seen.add(entry)
    return Vocabulary(tuple(entries), marks["end"], marks["start"], marks["unknown"], tuple(marks["never"]))


@dataclass(frozen=True, slots=True)
class Numbering:
    """Tables between the pieces of a subword model, as it numbers them, and the ids of a vocabulary."""

    vocabulary: Vocabulary
    symbols: Mapping[str, int]
    """The ids of words that are never segmented."""

    ids: "array[int]"
    """The id of each piece by its number, and at the end the unknown mark: `UNKNOWN_PIECE`, which is -1,
    finds it."""

    pieces: Mapping[int, int]
    """The number of the piece that each id stands for, where it stands for one."""

    foreign: Collection[int] = ()
    """The ids that stand for text, but are no pieces, as those of the other side's subword model where two of
    them share a vocabulary."""

    def ids_of(self, pieces: Sequence[int]) -> list[int]:
        """The ids of pieces."""
        if len(pieces) > 1:  # one call of C instead of a loop, since every sentence comes this way
            return list(itemgetter(*pieces)(self.ids))
        return [self.ids[piece] for piece in pieces]

    @classmethod
    def new(cls, symbols: Sequence[str], pieces: Sequence[str | None]) -> "Numbering":
        """Make a vocabulary: marks, symbols, pieces and filler, in this order; None among the pieces is no
        entry."""
        known = [*NEW_MARKS, *symbols, *(piece for piece in pieces if piece is not None)]
        filler = -len(known) % MULTIPLE
        end, unknown = (NEW_MARKS.index(mark) for mark in ("</s>", "<unk>"))
        vocabulary = Vocabulary(
            entries=(*known, *[""] * filler),
            end=end,
            start=end,
            unknown=unknown,
            never=tuple(range(len(known), len(known) + filler)),
        )
        following = iter(range(reserved(symbols), len(known)))
        ids = [unknown if piece is None else next(following) for piece in pieces]
        return cls._of(vocabulary, {s: len(NEW_MARKS) + i for i, s in enumerate(symbols)}, ids)

    @classmethod
    def over(
        cls, vocabulary: Vocabulary, symbols: Sequence[str], pieces: Sequence[str | None]
    ) -> "Numbering":
        """Tables for a given vocabulary; pieces that it lacks are unknown, a symbol that it lacks is a
        `UserError`."""
        # A mark is found by no piece, though one may be spelt like its entry.
        marks = {vocabulary.end, vocabulary.start, vocabulary.unknown, *vocabulary.never}
        known: dict[str | None, int] = {
            entry: i for i, entry in enumerate(vocabulary.entries) if i not in marks
        }
        if missing := [symbol for symbol in symbols if symbol not in known]:
            raise UserError(f"symbol {missing[0]} is not in the vocabulary; add it there, or leave it out.")
        ids = [known.get(piece, vocabulary.unknown) for piece in pieces]
        if {*ids} == {vocabulary.unknown}:
            raise UserError("the vocabulary has no piece of the subword model; they don't belong together.")
        made = cls._of(vocabulary, {symbol: known[symbol] for symbol in symbols}, ids)
        left = {*known.values()} - made.pieces.keys() - {*made.symbols.values()}
        return replace(made, foreign=frozenset(left))

    @classmethod
    def _of(cls, vocabulary: Vocabulary, symbols: Mapping[str, int], ids: Sequence[int]) -> "Numbering":
        # The unknown mark is no piece's: as text it shows as unknown.
        pieces = {i: piece for piece, i in enumerate(ids) if i != vocabulary.unknown}
        # An array, since NumPy reads its memory as it lies: all pieces of a block of lines are looked up at
        # once.
        return cls(vocabulary, symbols, array("I", [*ids, vocabulary.unknown]), pieces)


def reserved(symbols: Sequence[str]) -> int:
    """How many entries of a new vocabulary come before those of the subword model."""
    return len(NEW_MARKS) + len(symbols)
