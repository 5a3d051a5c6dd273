"""Constituency trees: a bracketed line, its words, and its linearised form.

    (TOP (S (NP-SBJ (DT The) (NN cat)) (VP (VBZ sleeps)) (. .)))
    The cat sleeps .
    (S (NP-SBJ DT NN )NP-SBJ (VP VBZ )VP . )S

A model writes the linearised form: labelled opening and closing brackets, and the tag of each word. It has no
root bracket. Traces, and brackets that contain only traces, are left out on both sides. In a source sentence
they would reveal a part of the parse. No function is recursive, so the depth is not limited.
"""

import re
from collections import Counter
from dataclasses import dataclass

ROOTS = ("TOP", "ROOT", "S1", "")
TRACE = "-NONE-"
UNKNOWN_TAG = "XX"
"""The tag of a word that was added to a damaged tree."""

SEPARATORS = " \t\n\r\f\v"
"""Separators of the parts of a tree. Other whitespace, such as a no-break space, is part of a word."""

PARTS = re.compile(
    r"\(\s*+([^\s()]++)\s++([^\s()]++)\s*+\)|\(\s*+[^\s()]*+\s*+\)|\(\s*+([^\s()]*+)|(\))|[^\s()]++", re.ASCII
)
"""A tag with its word, an opening bracket, or a closing one. A match without a group is an error. All
quantifiers are possessive. Otherwise a line of a million spaces would take quadratic time."""


@dataclass(frozen=True, slots=True)
class Tree:
    """A tree as the sequence of its brackets and tags, and its words."""

    symbols: tuple[str, ...]
    """`(NP` and `)NP` for brackets, `NN` for a word with that tag."""

    words: tuple[str, ...]
    """The words of the tags, in order. Empty if only the linearised form is known."""

    @property
    def tags(self) -> list[str]:
        """Return the tag of each word."""
        return [symbol for symbol in self.symbols if symbol[0] not in "()"]


def words_of(sentence: str) -> list[str]:
    """Return the words of a sentence, which have spaces between them."""
    return [word for word in sentence.split(" ") if word]


def parse(line: str) -> Tree:
    """Return the tree of a bracketed line. Raise `ValueError` with the first flaw if it has one."""
    tree, flaw = repair_bracketed(line)
    if flaw:
        raise ValueError(flaw)
    return tree


def linearised(tree: Tree) -> str:
    """Return the tree without its words, on one line."""
    return " ".join(tree.symbols)


def bracketed(tree: Tree) -> str:
    """Return the tree on one line inside a root bracket TOP. `tree.words` must have a word for each tag."""
    words = iter(tree.words)
    parts = (
        symbol if symbol[0] == "(" else ")" if symbol[0] == ")" else f"({symbol} {next(words)})"
        for symbol in tree.symbols
    )
    return f"(TOP {' '.join(parts)})".replace(" )", ")")


def repair_bracketed(line: str, word_count: int | None = None) -> tuple[Tree, str]:
    """Return the tree of a bracketed line, repaired if necessary, and a message about the first flaw or "".
    With `word_count`, the tree has exactly this number of words. Drop surplus words. Add missing words at the
    end with `UNKNOWN_TAG`, without an entry in `Tree.words`."""
    builder, words = _Builder(word_count), []
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


def repair_linearised(line: str, word_count: int | None = None) -> tuple[Tree, str]:
    """Return the tree of a linearised line, repaired if necessary, and a message about the first flaw or "".
    The tree has no words, only tags. With `word_count`, the tree has exactly this number of tags. Drop
    surplus tags, and add missing tags at the end as `UNKNOWN_TAG`."""
    builder = _Builder(word_count)
    for symbol in line.translate(str.maketrans(SEPARATORS, " " * len(SEPARATORS))).split(" "):
        if symbol in ("(", ")"):
            builder.flaw("a bracket has no label")
        elif symbol.startswith("("):
            builder.open(symbol[1:])
        elif symbol.startswith(")"):
            builder.close(symbol[1:])
        elif symbol:
            builder.leaf(symbol)
    symbols = builder.finish()
    if builder.dropped_bracket:
        builder.flaw("a bracket holds no word")
    return Tree(tuple(symbols), ()), builder.first_flaw


class _Builder:
    """A builder that makes a tree of any sequence of brackets and tags, and keeps the first flaw."""

    def __init__(self, word_count: int | None) -> None:
        self.first_flaw = ""
        self.trees = 0
        self.dropped_bracket = False
        """True if a bracket without words was dropped. This is a flaw in the linearised form only."""

        self._symbols: list[str] = []
        self._open: list[str] = []
        self._open_counts: Counter[str] = Counter()
        self._word_count = word_count
        self._leaves = 0

    def flaw(self, message: str) -> None:
        """Keep `message` if it is the first flaw."""
        self.first_flaw = self.first_flaw or message

    def leaf(self, tag: str) -> bool:
        """Add a word with this tag. Return False, without adding it, if `word_count` words are present."""
        self._leaves += 1
        if self._word_count is not None and self._leaves > self._word_count:
            return False
        self._symbols.append(tag)
        self.trees += not self._open
        return True

    def open(self, label: str) -> None:
        """Open a bracket with this label."""
        self._symbols.append(f"({label}")
        self._open.append(label)
        self._open_counts[label] += 1

    def close(self, label: str) -> None:
        """Close the innermost bracket with this label, and all brackets inside it. An empty label fits any
        bracket. If no bracket fits, close none and keep a flaw."""
        if (label and not self._open_counts[label]) or not self._open:
            self.flaw(f"){label} closes nothing")
            return
        while (innermost := self._close()) != label and label:
            self.flaw(f"({innermost} is not closed before ){label}")

    def _close(self) -> str:
        """Close the innermost bracket and return its label. Drop a bracket without words."""
        label = self._open.pop()
        self._open_counts[label] -= 1
        if self._symbols[-1] == f"({label}":
            self._symbols.pop()
            self.dropped_bracket = True
        else:
            self._symbols.append(f"){label}")
            self.trees += not self._open
        return label

    def finish(self) -> list[str]:
        """Add words up to the expected number, close all brackets, and return the tree's symbols. Keep a flaw
        for a wrong number of words, and for open brackets."""
        if not self._leaves:
            self.flaw("there is no word")
        if self._word_count is not None and self._leaves != self._word_count:
            self.flaw(f"there are {self._leaves} words, not {self._word_count}")
            for _ in range(self._word_count - self._leaves):
                self.leaf(UNKNOWN_TAG)
        if self._open:
            self.flaw(f"({self._open[-1]} is not closed")
        while self._open:
            self._close()
        return self._symbols
