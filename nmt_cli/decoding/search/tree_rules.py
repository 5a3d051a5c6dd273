"""Rules for well-formed trees: the symbols that may follow in a linearised tree with one tag per word.

A symbol is a token id: a bracket or a tag. A closing bracket matches the last open bracket, and brackets have
content. There is always room to close all brackets before the maximum length.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class TreeSymbols:
    """The ids of the symbols of trees."""

    closing: Mapping[int, int]
    """The matching closing bracket of each opening bracket."""

    tags: frozenset[int]


@dataclass(frozen=True, slots=True)
class TreeWanted:
    """The requirement that a translation is a tree over `words` words."""

    symbols: TreeSymbols
    words: int


@dataclass(frozen=True, slots=True)
class PartialTree:
    """The state of a tree that may be unfinished."""

    open: tuple[int, ...] = ()
    """The closing brackets that are still missing, outermost first."""

    tags: int = 0
    empty: bool = False
    """Whether the newest symbol is an opening bracket."""

    def then(self, token: int, symbols: TreeSymbols) -> "PartialTree":
        """Return the tree after one more token. A token that is not a symbol only clears `empty`."""
        if token in symbols.closing:
            return PartialTree((*self.open, symbols.closing[token]), self.tags, empty=True)
        if self.open and token == self.open[-1]:
            return PartialTree(self.open[:-1], self.tags)
        return PartialTree(self.open, self.tags + (token in symbols.tags))


def partial_tree(tokens: Sequence[int], symbols: TreeSymbols) -> PartialTree:
    """Return the state of the tree after all `tokens`."""
    tree = PartialTree()
    for token in tokens:
        tree = tree.then(token, symbols)
    return tree


def allowed_next(
    trees_R: Sequence[tuple[PartialTree, TreeWanted] | None], room_R: Sequence[int], entries: int, end: int
) -> Tensor:
    """Return [R, V] on the host: whether each of V = `entries` tokens may be next in each row.

    A row without a tree is None, and allows all. `room_R` are the numbers of tokens that fit before `end`.
    """
    allowed_RV = torch.zeros(len(trees_R), entries, dtype=torch.bool)
    for row, (entry, room) in enumerate(zip(trees_R, room_R, strict=True)):
        if entry is None:
            allowed_RV[row] = True
            continue
        tree, required = entry
        symbols, missing = required.symbols, required.words - tree.tags
        if missing > 0:
            allowed_RV[row, list(symbols.tags)] = True
            # A new bracket takes two tokens, one to open and one to close it.
            if room >= missing + len(tree.open) + 2:
                allowed_RV[row, list(symbols.closing)] = True
        if tree.open and not tree.empty:
            allowed_RV[row, tree.open[-1]] = True
        if missing <= 0 and not tree.open:
            allowed_RV[row, end] = True
    return allowed_RV
