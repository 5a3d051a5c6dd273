"""Trees as translations: known by the symbols that were learnt, and written out over the words."""

import string
from collections.abc import Sequence

from nmt_cli.corpus.trees import Tree, bracketed, repair_linearised
from nmt_cli.decoding.search.tree_rules import TreeSymbols
from nmt_cli.text.tokenizer import Tokenizer

ESCAPED = str.maketrans({"(": "-LRB-", ")": "-RRB-"})
"""As treebanks write brackets that are words."""


def tree_symbols(target: Tokenizer) -> TreeSymbols | None:
    """The symbols of linearised trees, if it is these that were learnt; None otherwise.

    Tags of one character are no symbols (see `corpus.trees.long_symbols`), but units like any other.
    """
    ids = {
        symbol: i for symbol, i in zip(target.symbols, target.encode(" ".join(target.symbols)), strict=True)
    }
    closing = {
        i: ids[f"){symbol[1:]}"] for symbol, i in ids.items() if symbol[0] == "(" and f"){symbol[1:]}" in ids
    }
    if not closing:
        return None
    tags = [i for symbol, i in ids.items() if symbol[0] not in "()"]
    for character in sorted({*string.punctuation, *string.ascii_letters} - {"(", ")"}):
        units = target.encode(f"{character} {character}")
        if target.vocabulary.unknown in units:
            continue
        if len(units) != 2:
            return None  # such a tag takes several pieces: rules for single ones would forbid it
        tags.append(units[0])
    return TreeSymbols(closing, frozenset(tags))


def written_out(line: str, words: Sequence[str]) -> str:
    """A linearised tree with its words, in brackets; repaired, if it does not fit them."""
    tree, _ = repair_linearised(line, len(words))
    return bracketed(Tree(tree.symbols, tuple(word.translate(ESCAPED) for word in words)))
