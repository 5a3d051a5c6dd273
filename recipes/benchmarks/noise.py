"""Count emoji and words of other scripts that a translation keeps.

    python -m recipes.benchmarks.noise SOURCE TRANSLATION

SOURCE is a test set after the variation "noise" of a text in Latin letters, such as
`test+noise.source.raw.txt` of a dataset. A sign is kept if the translation of its line has it, unchanged.
"""

import re
import sys
from pathlib import Path

PICTURES = "[\u2190-\u2bff\U0001f000-\U0001ffff]+"
LETTERS = "[\u0370-\u1fff\u3040-\ud7ff]+"


def kept(pattern: str, sources: list[str], translations: list[str]) -> tuple[int, int]:
    """Return how many of the matches of `pattern` in the sources the translations have, and their number."""
    found = [
        sign in translation
        for source, translation in zip(sources, translations, strict=True)
        for sign in re.findall(pattern, source)
    ]
    return sum(found), len(found)


def main() -> None:
    """Print how many pictures and words are kept."""
    sources, translations = (Path(name).read_text(encoding="utf-8").splitlines() for name in sys.argv[1:3])
    for name, pattern in (("pictures", PICTURES), ("words of other scripts", LETTERS)):
        print(f"{name}: {' of '.join(map(str, kept(pattern, sources, translations)))} kept")


if __name__ == "__main__":
    main()
