"""Vocabularies: the entry of each id, the special tokens, and the mapping between pieces and ids.

The file of a vocabulary has one entry per line, in the order of the ids. A subword model numbers its pieces
in its own way, and a `Numbering` maps these numbers to ids. Special tokens are the end, start and unknown
token and padding. They are not pieces, so no text becomes a special token, not even `</s>`. In
`tokenizer.json`, they are called marks.
"""

from array import array
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import Any

from nmt_cli.errors import UserError
from nmt_cli.setting_values import is_unicode
from nmt_cli.text.normalize import SPACE_MARK

NEW_MARKS = ("</s>", "<unk>")
"""The first entries of a new vocabulary. `</s>` is the end token and also the start token, `<unk>` the
unknown token."""

MULTIPLE = 8
"""The size of a new vocabulary is padded to a multiple of this number, because matrix products are faster
then."""


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """The vocabulary of one side, or of both sides if both share a vocabulary."""

    entries: tuple[str, ...]
    """The text of each id. Padding entries are empty."""

    end: int
    """The id that ends every sentence."""

    start: int | None
    """The id with which the input of the decoder begins. None means a vector of zeros instead."""

    unknown: int
    """The id of text without an entry."""

    never: tuple[int, ...] = ()
    """The ids that search never outputs, such as padding. Whether it outputs the unknown token is a
    setting."""

    bare: bool = False
    """True if sentences have no end token. It is not stored in `marks`, because `Recipe.bare_source` decides
    it."""

    def __post_init__(self) -> None:
        """Raise `UserError` if the special tokens or the entries are impossible.

        They are impossible if the id of a special token is out of range, the end and the unknown token are
        equal, one of both is in `never`, or an entry is not Unicode text.
        """
        marks = {"end": [self.end], "unknown": [self.unknown], "never": self.never}
        marks["start"] = [] if self.start is None else [self.start]
        for name, ids in marks.items():
            if wrong := [i for i in ids if not 0 <= i < len(self)]:
                raise UserError(
                    f"the {name} token is {wrong[0]}, but the vocabulary has {len(self):,} entries."
                )
        if not is_unicode("".join(self.entries)):
            entry = next(entry for entry in self.entries if not is_unicode(entry))
            raise UserError(f"the vocabulary has {entry!r}, which is not Unicode text. Copy it again.")
        if self.end == self.unknown or {self.end, self.unknown} & {*self.never}:
            raise UserError(f"end token {self.end} and unknown token {self.unknown} must have separate ids.")

    def __len__(self) -> int:
        return len(self.entries)

    @property
    def marks(self) -> dict[str, Any]:
        """The ids of the special tokens, in types of JSON."""
        return {"end": self.end, "start": self.start, "unknown": self.unknown, "never": list(self.never)}

    @property
    def spaces(self) -> list[int]:
        """The ids of entries that are only a space, ascending, such as a lone "▁" of SentencePiece."""
        entries = enumerate(self.entries)
        return [i for i, entry in entries if entry and not entry.replace(SPACE_MARK, " ").strip()]

    def ended(self, tokens: Sequence[int]) -> list[int]:
        """Return the ids of a sentence followed by the end token, as a new list.

        If `bare`, only an empty sentence gets an end token, because attention needs at least one token.
        """
        return [*tokens] if self.bare and tokens else [*tokens, self.end]

    def file(self) -> bytes:
        """Return the content of the vocabulary's file: one entry per line, in UTF-8."""
        return "".join(f"{entry}\n" for entry in self.entries).encode()


def read_vocabulary(content: bytes, marks: Mapping[str, Any]) -> Vocabulary:
    """Return the vocabulary in the content of a file. `marks` has the ids of special tokens, as
    `Vocabulary.marks` returns them.

    Raise `UserError` for a repeated entry, a last line without a line end, or an impossible special token.
    """
    entries = content.decode().split("\n")
    if entries.pop():
        raise UserError("the vocabulary file ends within a line. Copy it again.")
    seen: set[str] = set()
    # Padding entries are all empty.
    for entry in filter(None, entries):
        if entry in seen:
            raise UserError(f"the vocabulary file has {entry!r} twice. Copy it again.")
        seen.add(entry)
    return Vocabulary(tuple(entries), marks["end"], marks["start"], marks["unknown"], tuple(marks["never"]))


@dataclass(frozen=True, slots=True)
class Numbering:
    """The mapping between the pieces of a subword model and the ids of a vocabulary."""

    vocabulary: Vocabulary
    symbols: Mapping[str, int]
    """The id of each symbol. A symbol is a word that is never segmented."""

    ids: "array[int]"
    """The id of each piece by its number. The last item is the id of the unknown token, so that the index
    `UNKNOWN_PIECE` (-1) returns it."""

    pieces: Mapping[int, int]
    """The number of the piece of each id. Ids without a piece are left out."""

    foreign: Collection[int] = ()
    """Ids of pieces that only the other side's subword model has. There are some if both sides share a
    vocabulary, but not a subword model."""

    def ids_of(self, pieces: Sequence[int]) -> list[int]:
        """Return the id of each piece, given by its number. `UNKNOWN_PIECE` becomes the id of the unknown
        token."""
        if len(pieces) > 1:  # one call of C instead of a loop: this runs for every sentence
            return list(itemgetter(*pieces)(self.ids))
        return [self.ids[piece] for piece in pieces]

    @classmethod
    def new(cls, symbols: Sequence[str], pieces: Sequence[str | None]) -> "Numbering":
        """Create a vocabulary for a subword model, and return the numbering.

        Its entries are special tokens, `symbols`, `pieces` and padding, in this order. `pieces` has the text
        of each piece. A piece without text (None) gets no entry, and the id of the unknown token.
        """
        entries = [*NEW_MARKS, *symbols, *(piece for piece in pieces if piece is not None)]
        padding = -len(entries) % MULTIPLE
        end, unknown = (NEW_MARKS.index(mark) for mark in ("</s>", "<unk>"))
        vocabulary = Vocabulary(
            entries=(*entries, *[""] * padding),
            end=end,
            start=end,
            unknown=unknown,
            never=tuple(range(len(entries), len(entries) + padding)),
        )
        following = iter(range(reserved(symbols), len(entries)))
        ids = [unknown if piece is None else next(following) for piece in pieces]
        return cls._of(vocabulary, {s: len(NEW_MARKS) + i for i, s in enumerate(symbols)}, ids)

    @classmethod
    def over(
        cls, vocabulary: Vocabulary, symbols: Sequence[str], pieces: Sequence[str | None]
    ) -> "Numbering":
        """Return the numbering of an existing vocabulary. `pieces` has the text of each piece.

        A piece that has no entry, or is spelt like a special token, gets the id of the unknown token. Entries
        that are no piece, symbol or special token are `foreign`. Raise `UserError` if a symbol has no entry,
        or no piece has one.
        """
        # A piece may be spelt like a special token, but never gets its id.
        marks = {vocabulary.end, vocabulary.start, vocabulary.unknown, *vocabulary.never}
        id_of: dict[str | None, int] = {
            entry: i for i, entry in enumerate(vocabulary.entries) if i not in marks
        }
        if missing := [symbol for symbol in symbols if symbol not in id_of]:
            raise UserError(f"symbol {missing[0]} is not in the vocabulary. Add it there, or leave it out.")
        ids = [id_of.get(piece, vocabulary.unknown) for piece in pieces]
        if {*ids} == {vocabulary.unknown}:
            raise UserError("the vocabulary has no piece of the subword model. They do not belong together.")
        numbering = cls._of(vocabulary, {symbol: id_of[symbol] for symbol in symbols}, ids)
        foreign = {*id_of.values()} - numbering.pieces.keys() - {*numbering.symbols.values()}
        return replace(numbering, foreign=frozenset(foreign))

    @classmethod
    def _of(cls, vocabulary: Vocabulary, symbols: Mapping[str, int], ids: Sequence[int]) -> "Numbering":
        """Return the numbering in which piece N has the id `ids[N]`."""
        # The unknown token belongs to no piece, so that it decodes to `UNKNOWN_TEXT`.
        pieces = {i: piece for piece, i in enumerate(ids) if i != vocabulary.unknown}
        # An array, because NumPy can use its memory to look up all pieces of a block of lines at once.
        return cls(vocabulary, symbols, array("I", [*ids, vocabulary.unknown]), pieces)


def reserved(symbols: Sequence[str]) -> int:
    """Return the number of entries in a new vocabulary before the first piece: special tokens and symbols."""
    return len(NEW_MARKS) + len(symbols)
