"""Print the phrases of bracketed trees as additional trees for small corpora.

    python -m recipes.parsing.phrases [LIMIT] <TREES >PHRASES

Phrases of 2 to LIMIT (10) words are written, each once. Sentences and their outermost phrases are left out.
"""

import re
import sys
from collections.abc import Iterator

WORD = re.compile(r"\([^\s()]+ [^\s()]+\)")


def phrases(tree: str, limit: int) -> Iterator[str]:
    """Yield the phrases of a line, inner ones first."""
    starts: list[int] = []
    for position, sign in enumerate(tree):
        if sign == "(":
            starts.append(position)
        elif sign == ")":
            phrase = tree[starts.pop() : position + 1]
            if len(starts) > 1 and 2 <= len(WORD.findall(phrase)) <= limit:
                yield phrase


def main() -> None:
    """Read trees and write their phrases."""
    limit = int(sys.argv[1]) if sys.argv[1:] else 10
    all_phrases = (phrase for line in sys.stdin for phrase in phrases(line, limit))
    for phrase in dict.fromkeys(all_phrases):
        print(phrase)


if __name__ == "__main__":
    main()
