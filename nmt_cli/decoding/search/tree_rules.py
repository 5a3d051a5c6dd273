"""Well-formed trees: which symbols may follow in a linearised tree with one tag for each word.

Every bracket closes what was opened last, none is empty, and there is room to close all of them before the
longest translation there may be.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class TreeSymbols:
    """The ids that trees are written with."""

    closing: Mapping[int, int]
    """For each opening bracket the one that closes it."""

    tags: frozenset[int]


@dataclass(frozen=True, slots=True)
class TreeWanted:
    """That a sentence's translation is a tree over so many words."""

    symbols: TreeSymbols
    words: int


@dataclass(frozen=True, slots=True)
class Written:
    """A tree as far as it is written."""

    open: tuple[int, ...] = ()
    """The brackets that close what is open, the outermost first."""

    tags: int = 0
    empty: bool = False
    """The newest symbol opened a bracket."""

    def then(self, token: int, symbols: TreeSymbols) -> "Written":
        """With one more symbol; what is no part of a tree, in a prefix that was given, changes nothing."""
        if token in symbols.closing:
            return Written((*self.open, symbols.closing[token]), self.tags, empty=True)
        if self.open and token == self.open[-1]:
            return Written(self.open[:-1], self.tags)
        return Written(self.open, self.tags + (token in symbols.tags))


def written(tokens: Sequence[int], symbols: TreeSymbols) -> Written:
    """The tree that `tokens` are the beginning of."""
    tree = Written()
    for token in tokens:
        tree = tree.then(token, symbols)
    return tree


def allowed_next(
    trees_R: Sequence[tuple[Written, TreeWanted] | None], room_R: Sequence[int], entries: int, end: int
) -> Tensor:
    """[R, V]: whether each of so many `entries` may be the next token of each row, on the host.

    `room_R` is how many tokens there may still be before the end mark; None stands for no tree.
    """
    allowed_RV = torch.zeros(len(trees_R), entries, dtype=torch.bool)
    for row, (each, room) in enumerate(zip(trees_R, room_R, strict=True)):
        if each is None:
            allowed_RV[row] = True
            continue
        tree, wanted = each
        symbols, missing = wanted.symbols, wanted.words - tree.tags
        if missing > 0:
            allowed_RV[row, list(symbols.tags)] = True
            # A new bracket takes two tokens: itself, and what closes it.
            if room >= missing + len(tree.open) + 2:
                allowed_RV[row, list(symbols.closing)] = True
        if tree.open and not tree.empty:
            allowed_RV[row, tree.open[-1]] = True
        if missing <= 0 and not tree.open:
            allowed_RV[row, end] = True
    return allowed_RV
