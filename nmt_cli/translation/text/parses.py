"""Parse trees as translations. The symbols of the vocabulary show that a model writes linearised trees."""

import string
from collections.abc import Sequence

from nmt_cli.corpus.trees import Tree, bracketed, repair_linearised
from nmt_cli.decoding.search.tree_rules import TreeSymbols
from nmt_cli.text.tokenizer import Tokenizer

ESCAPED = str.maketrans({"(": "-LRB-", ")": "-RRB-"})
"""The form of brackets that are words in treebanks."""


def tree_symbols(target: Tokenizer) -> TreeSymbols | None:
    """Return the symbols of linearised trees in the vocabulary of `target`, or None if the model writes other
    text. Tags of one character are ordinary tokens rather than symbols (see `corpus.trees.long_symbols`).
    None is also returned if such a tag has several tokens."""
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
            return None  # the rules for single tokens would forbid this tag
        tags.append(units[0])
    return TreeSymbols(closing, frozenset(tags))


def written_out(line: str, words: Sequence[str]) -> str:
    """Return the linearised tree in `line` in brackets over `words`. If they do not fit it, repair it
    first."""
    tree, _ = repair_linearised(line, len(words))
    return bracketed(Tree(tree.symbols, tuple(word.translate(ESCAPED) for word in words)))
