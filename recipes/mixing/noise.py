"""Makes of each line on stdin one as a poor system might have translated it: words lost, doubled and moved.

The same lines give the same noise.
"""

import random
import sys

LOST, DOUBLED, REACH = 0.15, 0.05, 3.0


def noised(line: str, draw: random.Random) -> str:
    """The words of `line`, some of them lost or doubled, and each moved by a few places."""
    words = [word for word in line.split() for _ in range(_times(draw))]
    places = [place + draw.random() * REACH for place in range(len(words))]
    return " ".join(word for _, word in sorted(zip(places, words, strict=True)))


def _times(draw: random.Random) -> int:
    drawn = draw.random()
    return 0 if drawn < LOST else 2 if drawn < LOST + DOUBLED else 1


if __name__ == "__main__":
    generator = random.Random(1)
    for text in sys.stdin:
        print(noised(text, generator))
