"""Restore trees from the parses that `nmt translate --n-best N` writes.

    python -m recipes.parsing.restore WORDS <LISTS >TREES

A line of WORDS is a sentence with spaces between its words. A line of LISTS is the number of a sentence from
0, a linearised tree and its score, with ` ||| ` between them. Each tree is printed in brackets over exactly
the words of its sentence. It is the first well-formed parse of the list. If there is none, the first parse is
repaired: surplus tags are dropped, and missing ones become XX.
"""

import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from recipes.parsing.trees import Tree, bracketed, repair_linearised

ESCAPED = str.maketrans({"(": "-LRB-", ")": "-RRB-"})
"""The form of brackets that are words in treebanks."""


def restored(parses: Sequence[str], sentence: str) -> str:
    """Return the first well-formed tree of `parses`, which are linearised, in brackets over the words of
    `sentence`. If there is none, repair the first parse. Return "" for a sentence without words."""
    words = sentence.translate(ESCAPED).split(" ") if sentence else []
    if not words:
        return ""
    repaired = [repair_linearised(parse, len(words)) for parse in parses or [""]]
    tree = next((tree for tree, flaw in repaired if not flaw), repaired[0][0])
    return bracketed(Tree(tree.symbols, tuple(words)))


def main() -> None:
    """Read lists of parses from stdin, and print a tree for each sentence of WORDS."""
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    parses = defaultdict[int, list[str]](list)
    for line in sys.stdin:
        number, parse, _ = line.split(" ||| ", 2)
        parses[int(number)].append(parse)
    with Path(sys.argv[1]).open(encoding="utf-8", errors="surrogateescape", newline="\n") as sentences:
        for number, sentence in enumerate(sentences):
            print(restored(parses[number], sentence.rstrip("\n")))


if __name__ == "__main__":
    main()
