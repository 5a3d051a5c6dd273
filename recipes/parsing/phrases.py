"""Phrases of bracketed trees, as trees of their own: little text goes further with them.

    python recipes/parsing/phrases.py [MOST] <TREES >PHRASES

Each of 2 to MOST (10) words is written once. A whole sentence is none, nor is its outermost phrase.
"""

import re
import sys
from collections.abc import Iterator

WORD = re.compile(r"\([^\s()]+ [^\s()]+\)")


def phrases(tree: str, most: int) -> Iterator[str]:
    """The phrases of a line, inner ones first."""
    starts: list[int] = []
    for place, sign in enumerate(tree):
        if sign == "(":
            starts.append(place)
        elif sign == ")":
            phrase = tree[starts.pop() : place + 1]
            if len(starts) > 1 and 2 <= len(WORD.findall(phrase)) <= most:
                yield phrase


def main() -> None:
    """Read trees, and write their phrases."""
    most = int(sys.argv[1]) if sys.argv[1:] else 10
    found = (phrase for line in sys.stdin for phrase in phrases(line, most))
    for phrase in dict.fromkeys(found):
        print(phrase)


if __name__ == "__main__":
    main()
