"""Constituency trees: a bracketed line to words and a linearised tree, and back.

    (TOP (S (NP-SBJ (DT The) (NN cat)) (VP (VBZ sleeps)) (. .)))
    The cat sleeps .
    (S (NP-SBJ DT NN )NP-SBJ (VP VBZ )VP . )S

The linearised tree is what a model writes: labelled opening and closing brackets, and for each word its tag
alone. It lacks the root bracket. Traces, and brackets that hold nothing but traces, are left out of both
sides: in a source sentence they would give part of the answer away. Nothing here recurses, so any depth will
do.
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

SUFFIX = ".trees"
ROOTS = ("TOP", "ROOT", "S1", "")
TRACE = "-NONE-"
UNKNOWN_TAG = "XX"
"""The tag put in where a damaged tree has too few words."""

BLANKS = " \t\n\r\f\v"
"""What separates the parts of a tree; other white space, such as a no-break space, is part of a word."""

PARTS = re.compile(
    r"\(\s*+([^\s()]++)\s++([^\s()]++)\s*+\)|\(\s*+[^\s()]*+\s*+\)|\(\s*+([^\s()]*+)|(\))|[^\s()]++", re.ASCII
)
"""A tag with its word, an opening, a closing bracket; what matches without a group is no part of a tree.

Nothing that was taken is given back: a line of a million blanks would be looked at a million times."""


@dataclass(frozen=True, slots=True)
class Tree:
    """A tree as the sequence of its brackets and tags, and its words."""

    symbols: tuple[str, ...]
    """`(NP` and `)NP` for brackets, `NN` for a word with that tag."""

    words: tuple[str, ...]
    """The words under the tags, in order; empty if only the linearised tree is known."""

    @property
    def tags(self) -> list[str]:
        """The tag of each word."""
        return [symbol for symbol in self.symbols if symbol[0] not in "()"]


def parse(line: str) -> Tree:
    """The tree on a bracketed line; `ValueError` says what is wrong with it."""
    tree, flaw = mended_bracketed(line)
    if flaw:
        raise ValueError(flaw)
    return tree


def restore(line: str, words: Sequence[str]) -> Tree:
    """The tree of a linearised line, with `words` under its tags; `ValueError` says what is wrong with it."""
    tree, flaw = mended_linearised(line, len(words))
    if flaw:
        raise ValueError(flaw)
    return Tree(tree.symbols, tuple(words))


def linearised(tree: Tree) -> str:
    """The tree without its words, on one line."""
    return " ".join(tree.symbols)


def bracketed(tree: Tree) -> str:
    """The tree with its words, on one line, in a bracket TOP."""
    words = iter(tree.words)
    parts = (
        symbol if symbol[0] == "(" else ")" if symbol[0] == ")" else f"({symbol} {next(words)})"
        for symbol in tree.symbols
    )
    return f"(TOP {' '.join(parts)})".replace(" )", ")")


def long_symbols(lines: Iterable[bytes]) -> set[str]:
    """The symbols in the linearised trees of these bracketed lines, without those of a single character."""
    found = set()
    for line in lines:
        for tag, _, label, _ in PARTS.findall(line.decode(errors="replace")):
            found |= {f"({label}", f"){label}"} if label else {tag}
    left_out = {TRACE, *(f"{bracket}{root}" for root in ROOTS for bracket in "()")}
    return {symbol for symbol in found - left_out if len(symbol) > 1}


def mended_bracketed(line: str, leaves: int | None = None) -> tuple[Tree, str]:
    """The tree on a bracketed line, repaired if need be, and its first flaw; "" if it has none.

    With `leaves`, the tree gets so many words: those beyond are left out, and missing ones are added at the
    end.
    """
    builder, words = _Builder(leaves), []
    for part in PARTS.finditer(line):
        match part.lastindex:
            case 2:
                if part[1] != TRACE and builder.leaf(part[1]):
                    words.append(part[2])
            case 3:
                builder.open(part[3])
            case 4:
                builder.close("")
            case _:
                builder.flaw(f"{part[0]} is neither a bracket nor a word with its tag")
    symbols = builder.finish()
    if builder.trees > 1:
        builder.flaw(f"there are {builder.trees} trees")
    elif symbols and symbols[0][0] == "(" and symbols[0][1:] in ROOTS:
        symbols = symbols[1:-1]
    if "(" in symbols:
        builder.flaw("a bracket has no label")
    return Tree(tuple(symbols), tuple(words)), builder.first_flaw


def mended_linearised(line: str, leaves: int | None = None) -> tuple[Tree, str]:
    """`mended_bracketed` for a linearised line, whose tree has no words."""
    builder = _Builder(leaves)
    for symbol in line.translate(str.maketrans(BLANKS, " " * len(BLANKS))).split(" "):
        bracket, label = symbol[:1], symbol[1:]
        if bracket not in ("(", ")"):
            if symbol:
                builder.leaf(symbol)
        elif not label:
            builder.flaw("a bracket has no label")
        elif bracket == "(":
            builder.open(label)
        else:
            builder.close(label)
    symbols = builder.finish()
    if builder.empty:
        builder.flaw("a bracket holds no word")
    return Tree(tuple(symbols), ()), builder.first_flaw


class _Builder:
    """Builds a tree from whatever brackets and words come, and notes the first flaw in them."""

    def __init__(self, leaves: int | None) -> None:
        self.first_flaw = ""
        self.trees = 0
        self.empty = False
        """Whether some bracket held nothing and was left out; that is a flaw in a linearised tree only."""

        self._symbols: list[str] = []
        self._open: list[str] = []
        self._open_of: Counter[str] = Counter()
        self._limit = leaves
        self._count = 0

    def flaw(self, what: str) -> None:
        self.first_flaw = self.first_flaw or what

    def leaf(self, tag: str) -> bool:
        """Add a word with this tag; returns False if there are `leaves` words already."""
        self._count += 1
        if self._limit is not None and self._count > self._limit:
            return False
        self._symbols.append(tag)
        self.trees += not self._open
        return True

    def open(self, label: str) -> None:
        self._symbols.append(f"({label}")
        self._open.append(label)
        self._open_of[label] += 1

    def close(self, label: str) -> None:
        """Close the innermost bracket of this label, of any if it is empty, and all that is open in it."""
        if (label and not self._open_of[label]) or not self._open:
            self.flaw(f"){label} closes nothing")
            return
        while (innermost := self._close()) != label and label:
            self.flaw(f"({innermost} is not closed before ){label}")

    def _close(self) -> str:
        label = self._open.pop()
        self._open_of[label] -= 1
        # Nothing stands in it, or only traces: it is taken out again.
        if self._symbols[-1] == f"({label}":
            self._symbols.pop()
            self.empty = True
        else:
            self._symbols.append(f"){label}")
            self.trees += not self._open
        return label

    def finish(self) -> list[str]:
        """The whole tree, with as many words as there must be, and every bracket closed."""
        if not self._count:
            self.flaw("there is no word")
        if self._limit is not None and self._count != self._limit:
            self.flaw(f"there are {self._count} words, not {self._limit}")
            for _ in range(self._limit - self._count):
                self.leaf(UNKNOWN_TAG)
        if self._open:
            self.flaw(f"({self._open[-1]} is not closed")
        while self._open:
            self._close()
        return self._symbols
