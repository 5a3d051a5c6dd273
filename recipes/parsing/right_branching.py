"""What a parse is worth that looks at no word: right-branching trees for linearised ones.

    python recipes/parsing/right_branching.py <TREES >PARSES

A sentence is S, and from each further word to its end is a VP, but for the last word, which gets none of its
own; punctuation at the end belongs to S. Of a line the tags alone are looked at.
"""

import sys
from collections.abc import Sequence

PUNCTUATION = frozenset({",", ":", "``", "''", "."})


def right_branching(tags: Sequence[str]) -> str:
    """The linearised tree over these tags."""
    end = len(tags)
    while end > 1 and tags[end - 1] in PUNCTUATION:
        end -= 1
    inner = max(end - 2, 0)
    symbols = ["(S", tags[0]]
    for tag in tags[1 : 1 + inner]:
        symbols += ["(VP", tag]
    return " ".join([*symbols, *tags[1 + inner : end], *[")VP"] * inner, *tags[end:], ")S"])


def main() -> None:
    """Read linearised trees, and write others."""
    for line in sys.stdin:
        print(right_branching([symbol for symbol in line.split() if symbol[0] not in "()"]))


if __name__ == "__main__":
    main()
