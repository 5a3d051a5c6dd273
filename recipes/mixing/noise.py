"""Turn each line on stdin into the output of a poor translation system: words are lost, doubled and moved.

The same input gives the same noise.
"""

import random
import sys

LOST, DOUBLED, REACH = 0.15, 0.05, 3.0


def noised(line: str, draw: random.Random) -> str:
    """Drop and double some words of `line`, and move each word by a few positions."""
    words = [word for word in line.split() for _ in range(_times(draw))]
    positions = [position + draw.random() * REACH for position in range(len(words))]
    return " ".join(word for _, word in sorted(zip(positions, words, strict=True)))


def _times(draw: random.Random) -> int:
    drawn = draw.random()
    return 0 if drawn < LOST else 2 if drawn < LOST + DOUBLED else 1


if __name__ == "__main__":
    generator = random.Random(1)
    for text in sys.stdin:
        print(noised(text, generator))
