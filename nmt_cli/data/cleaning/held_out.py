"""Search for pairs of validation and test sets in the training text, so that they can be left out of it.

Each line has a key, which does not depend on case, spaces and punctuation. Equal keys mean that a line is
found.
"""

import re
import string
import unicodedata
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import count
from pathlib import Path

from nmt_cli.corpus.parallel import Corpus, PairBlock
from nmt_cli.text.normalize import LONG, interrupt_marks

LINES_AT_ONCE = 1000
ASCII = (string.punctuation + " \t\v\f\r").encode()
MARKS = "“”„‘’«»–—…\xa0。、「」¿¡"
"""Common punctuation and spaces outside ASCII."""

AT_ONCE = 500
"""The number of lines that are processed as one text. Fewer are slower, and more do not fit into the
processor's cache."""


@dataclass(frozen=True, slots=True)
class HeldOut:
    """A file with the keys of all pairs that the training set must not have."""

    path: Path
    sha256: str
    symbols: frozenset[bytes] = frozenset()
    """The words that are ignored at the start of a source, such as a language code."""

    by: str = ""
    """The sides that must be equal, as in `filter.decontaminate_by`. "" means that setting."""


def keys(lines: Sequence[bytes]) -> list[bytes]:
    """Return a key for each line. No line may contain a line feed.

    Lines that differ only in case, spaces, common punctuation or Unicode form have equal keys. A line without
    other characters has the key b"". One call for many lines is faster.
    """
    return [key for start in range(0, len(lines), AT_ONCE) for key in _keys(lines[start : start + AT_ONCE])]


def _keys(lines: Sequence[bytes]) -> list[bytes]:
    """Return the keys of up to `AT_ONCE` lines: in lower case, in form NFKC, and without the characters of
    `ASCII` and `MARKS`."""
    text = b"\n".join(lines).decode(errors="replace")
    if text.isascii():
        text = text.lower()
    else:
        text = text.casefold()
        for mark in MARKS:
            text = text.replace(mark, "")
        # Line by line, because a key must not depend on other lines.
        if any(len(line) > LONG for line in lines):
            pairs = zip(lines, text.split("\n"), strict=True)
            text = "\n".join(interrupt_marks(own) if len(line) > LONG else own for line, own in pairs)
        if not unicodedata.is_normalized("NFKC", text):
            text = unicodedata.normalize("NFKC", text)
    return text.encode().translate(None, ASCII).split(b"\n")


def without_symbols(lines: Sequence[bytes], symbols: Collection[bytes]) -> list[bytes]:
    """Return the lines without words in `symbols` at their start. Such words later in a line do not
    change."""
    if not symbols:
        return list(lines)
    start = re.compile(rb"\s*((%b)(\s+|$))*" % b"|".join(map(re.escape, symbols)))
    return [start.sub(b"", line, count=1) for line in lines]


def write(corpora: Iterable[Corpus], path: Path, symbols: Collection[bytes]) -> None:
    """Write the keys of all pairs to `path`, one pair per line as `source<TAB>target`.

    Words in `symbols` at the start of sources are ignored. A pair with two empty keys is left out.
    """
    with path.open("wb") as file:
        for corpus in corpora:
            for block in corpus.blocks(LINES_AT_ONCE):
                pairs = zip(keys(without_symbols(block.sources, symbols)), keys(block.targets), strict=True)
                file.writelines(b"%b\t%b\n" % pair for pair in pairs if any(pair))


def occurring(block: PairBlock, held_out: HeldOut, by: str) -> set[int]:
    """Return the numbers of those pairs in `block` that are held out. Pairs are counted from 1 in the corpus.

    `by` is the side that must have the key of a held-out pair: "pair" (both), "source", "target" or "either".
    An empty key is never found, except in the source if `by` is "pair".
    """
    sources_by_target, all_sources = _loaded(held_out)
    if not (sources_by_target or all_sources):
        return set()
    targets = keys(block.targets)
    if by != "pair":
        sources = keys(without_symbols(block.sources, held_out.symbols))
        return {
            number
            for number, source, target in zip(count(block.first), sources, targets, strict=False)
            if (by != "target" and source in all_sources) or (by != "source" and target in sources_by_target)
        }
    # Few targets are held out, so only their sources need keys.
    rows = [row for row, target in enumerate(targets) if target in sources_by_target]
    sources = keys(without_symbols([block.sources[row] for row in rows], held_out.symbols))
    return {
        block.first + row
        for row, source in zip(rows, sources, strict=True)
        if source in sources_by_target[targets[row]]
    }


@cache
def _loaded(held_out: HeldOut) -> tuple[Mapping[bytes, frozenset[bytes]], frozenset[bytes]]:
    """Return the keys of the held-out sources by the key of their target, and all keys of sources. The file
    is read once per process."""
    sources_by_target: dict[bytes, set[bytes]] = {}
    for line in held_out.path.read_bytes().split(b"\n")[:-1]:
        source, _, target = line.partition(b"\t")
        sources_by_target.setdefault(target, set()).add(source)
    # An empty key would match every line of punctuation.
    all_sources = frozenset[bytes]().union(*sources_by_target.values()) - {b""}
    by_target = {target: frozenset(sources) for target, sources in sources_by_target.items() if target}
    return by_target, all_sources
