"""Replace linearised trees with right-branching ones. They are the baseline for a parser.

    python -m recipes.parsing.right_branching <TREES >PARSES

The sentence is an S. Each word after the first, except the last, begins a VP up to the end of the sentence.
Punctuation at the end belongs to S. Only the tags of a line are used.
"""

import sys
from collections.abc import Sequence

from recipes.parsing.score import PUNCTUATION


def right_branching(tags: Sequence[str]) -> str:
    """Return the linearised tree over these tags."""
    end = len(tags)
    while end > 1 and tags[end - 1] in PUNCTUATION:
        end -= 1
    inner = max(end - 2, 0)
    symbols = ["(S", tags[0]]
    for tag in tags[1 : 1 + inner]:
        symbols += ["(VP", tag]
    return " ".join([*symbols, *tags[1 + inner : end], *[")VP"] * inner, *tags[end:], ")S"])


def main() -> None:
    """Read linearised trees and write right-branching ones."""
    for line in sys.stdin:
        print(right_branching([symbol for symbol in line.split() if symbol[0] not in "()"]))


if __name__ == "__main__":
    main()
