"""Word lists of other tools: a word per line, or a word and its count as in fairseq and subword-nmt."""

import re

from nmt_cli.errors import UserError

MARKS = frozenset({"<s>", "</s>", "<pad>", "<unk>"})
"""Special tokens that a list may contain. A vocabulary has its own."""

COUNTED = re.compile(r"(\S+)[ \t](\d+)(?: #fairseq:overwrite)?")
FILLER = re.compile(r"madeupword\d{4}")
"""Padding entries of fairseq, which round up the size."""

JOINER, MAX_JOINED = "@@", 10
"""The ending of pieces of subword-nmt that do not end a word, and the number of words that may have it."""


def words_of(content: bytes) -> list[str]:
    """Return the words of a list, each once, without counts, special tokens and fairseq's padding. Line 1
    decides whether lines have counts. Raise `UserError` for an empty list or a line of several words. Also
    raise it for a missing count, or many words that end in `JOINER`."""
    lines = content.decode("utf-8-sig").replace("\r\n", "\n").split("\n")
    counted = bool(COUNTED.fullmatch(next(filter(str.strip, lines), "")))
    words: dict[str, None] = {}
    for number, line in enumerate(lines, start=1):
        word = COUNTED.sub(r"\1", line) if counted else line.strip()
        if len(word.split()) > 1 or (counted and word and word == line):
            problem = f"is {line[:40]!r}, not a word and its count" if counted else "holds several words"
            raise UserError(
                f"line {number:,} {problem}. A list has one word per line, or a word and its count."
            )
        if word and word not in MARKS and not (counted and FILLER.fullmatch(word)):
            words[word] = None
    if not words:
        raise UserError("the list contains no word.")
    joined = [word for word in words if word.endswith(JOINER) and word != JOINER]
    if len(joined) > MAX_JOINED + len(words) // 100:
        raise UserError(
            f"{len(joined):,} of {len(words):,} entries end in {JOINER}, such as {joined[0]!r}: they are "
            "subword-nmt's pieces, not words. Give its codes instead (a file that begins with #version): "
            "--reuse-tokenizer CODES."
        )
    return list(words)
