"""Restore trees from linearised ones, such as the output of `nmt translate`.

    python -m recipes.parsing.restore WORDS <PARSES >TREES

A line of WORDS is a sentence with spaces between its words. Each tree is printed in brackets over exactly
these words. A malformed parse is repaired: surplus tags are dropped, and missing ones become XX.
"""

import sys
from pathlib import Path

from recipes.parsing.trees import Tree, bracketed, repair_linearised

ESCAPED = str.maketrans({"(": "-LRB-", ")": "-RRB-"})
"""The form of brackets that are words in treebanks."""


def restored(parse: str, sentence: str) -> str:
    """Return the linearised tree in `parse`, repaired if necessary, in brackets over the words of `sentence`.
    Return "" for a sentence without words."""
    words = sentence.translate(ESCAPED).split(" ") if sentence else []
    tree, _ = repair_linearised(parse, len(words))
    return bracketed(Tree(tree.symbols, tuple(words))) if words else ""


def main() -> None:
    """Read parses from stdin and print trees. Raise `ValueError` unless each has a line of WORDS."""
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    with Path(sys.argv[1]).open(encoding="utf-8") as sentences:
        for sentence, parse in zip(sentences, sys.stdin, strict=True):
            print(restored(parse, sentence.rstrip("\n")))


if __name__ == "__main__":
    main()
