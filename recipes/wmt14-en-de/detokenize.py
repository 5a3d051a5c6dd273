"""Restore plain text from the subwords that Google published: join byte pairs and detokenise.

    python recipes/wmt14-en-de/detokenize.py LANG <PIECES >TEXT

Text that is tokenised twice changes ("Tom 's" becomes "Tom ' s"), so the first tokenisation must be undone.
"""

import sys

from sacremoses import MosesDetokenizer


def main() -> None:
    """Write the plain text of each line on stdin to stdout. The language is the first argument."""
    detokenizer = MosesDetokenizer(lang=sys.argv[1])
    for line in sys.stdin.buffer:
        words = line.decode("utf-8").replace("@@ ", "").split()
        sys.stdout.buffer.write(f"{detokenizer.detokenize(words, unescape=True)}\n".encode())


if __name__ == "__main__":
    main()
