"""Turn each line on stdin into the output of a poor translation system: words are lost, doubled and moved.

The same input gives the same noise.
"""

import random
import sys

LOST, DOUBLED, REACH = 0.15, 0.05, 3.0
"""Probabilities that a word is lost or doubled, and the maximum distance that a word moves."""


def noised(line: str, draw: random.Random) -> str:
    """Return `line` with some words dropped or doubled, and each word moved by up to `REACH` positions."""
    words = []
    for word in line.split():
        drawn = draw.random()
        count = 0 if drawn < LOST else 2 if drawn < LOST + DOUBLED else 1
        words += [word] * count
    positions = [position + draw.random() * REACH for position in range(len(words))]
    return " ".join(word for _, word in sorted(zip(positions, words, strict=True)))


if __name__ == "__main__":
    generator = random.Random(1)
    for text in sys.stdin:
        print(noised(text, generator))
