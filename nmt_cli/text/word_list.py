"""Lists of words that somebody has: one a line, or with counts, as fairseq and subword-nmt have them."""

import re

from nmt_cli.errors import UserError

MARKS = frozenset({"<s>", "</s>", "<pad>", "<unk>"})
"""Which such lists may hold, and a vocabulary has of its own."""

COUNTED = re.compile(r"(\S+)[ \t](\d+)(?: #fairseq:overwrite)?")
FILLER = re.compile(r"madeupword\d{4}")
"""What fairseq rounds the size up with."""


def words_of(content: bytes) -> list[str]:
    """The words of a list in its order, each once; `UserError` names the line that is none."""
    lines = content.decode("utf-8-sig").replace("\r\n", "\n").split("\n")
    counted = bool(lines) and all(COUNTED.fullmatch(line) for line in lines if line.strip())
    words: dict[str, None] = {}
    for number, line in enumerate(lines, start=1):
        word = COUNTED.sub(r"\1", line) if counted else line.strip()
        if len(word.split()) > 1:
            raise UserError(
                f"line {number:,} holds several words; a list has one a line, or a word and its count."
            )
        if word and word not in MARKS and not (counted and FILLER.fullmatch(word)):
            words[word] = None
    if not words:
        raise UserError("there is no word in it.")
    return list(words)
