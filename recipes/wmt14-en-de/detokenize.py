"""Running text out of the pieces that Google prepared: joins byte pairs, and undoes the tokenising.

    python recipes/wmt14-en-de/detokenize.py LANG <PIECES >TEXT

What is split into words a second time is split otherwise ("Tom 's" becomes "Tom ' s"), so the text has to be
what it was before the first.
"""

import sys

from sacremoses import MosesDetokenizer


def main() -> None:
    """Translate stdin to stdout, line for line."""
    detokenizer = MosesDetokenizer(lang=sys.argv[1])
    for line in sys.stdin.buffer:
        words = line.decode("utf-8").replace("@@ ", "").split()
        sys.stdout.buffer.write(f"{detokenizer.detokenize(words, unescape=True)}\n".encode())


if __name__ == "__main__":
    main()
