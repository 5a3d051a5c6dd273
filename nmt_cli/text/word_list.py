"""Lists of words that somebody has: one a line, or with counts, as fairseq and subword-nmt have them."""

import re

from nmt_cli.errors import UserError

MARKS = frozenset({"<s>", "</s>", "<pad>", "<unk>"})
"""Which such lists may hold, and a vocabulary has of its own."""

COUNTED = re.compile(r"(\S+)[ \t](\d+)(?: #fairseq:overwrite)?")
FILLER = re.compile(r"madeupword\d{4}")
"""What fairseq rounds the size up with."""

JOINER, JOINED = "@@", 10
"""What subword-nmt writes after a piece that does not end its word, and how many words may end so anyway."""


def words_of(content: bytes) -> list[str]:
    """Return the words of a list in order, each once. `UserError` names a line that is not a word.

    It also refuses lists of BPE pieces: without their codes, most text would be unknown.
    """
    lines = content.decode("utf-8-sig").replace("\r\n", "\n").split("\n")
    counted = bool(COUNTED.fullmatch(next(filter(str.strip, lines), "")))
    words: dict[str, None] = {}
    for number, line in enumerate(lines, start=1):
        word = COUNTED.sub(r"\1", line) if counted else line.strip()
        if len(word.split()) > 1 or (counted and word and word == line):
            wrong = f"is {line[:40]!r}, not a word and its count" if counted else "holds several words"
            raise UserError(f"line {number:,} {wrong}; a list has one a line, or a word and its count.")
        if word and word not in MARKS and not (counted and FILLER.fullmatch(word)):
            words[word] = None
    if not words:
        raise UserError("there is no word in it.")
    joined = [word for word in words if word.endswith(JOINER) and word != JOINER]
    if len(joined) > JOINED + len(words) // 100:
        raise UserError(
            f"{len(joined):,} of {len(words):,} entries end in {JOINER}, such as {joined[0]!r}: they are "
            "subword-nmt's pieces, not words. Give its codes instead (a file that begins with #version): "
            "--reuse-tokenizer CODES."
        )
    return list(words)
