"""Pairs of valid and test sets, which no model may be trained on; known whatever their case, blanks and
punctuation are."""

import string
import unicodedata
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import count
from pathlib import Path

from nmt_cli.corpus.parallel import Block, Corpus

LINES_AT_ONCE = 1000
ASCII = (string.punctuation + " \t\v\f\r").encode()
MARKS = "“”„‘’«»–—…\xa0。、「」¿¡"
"""The usual punctuation and blank beyond ASCII."""

AT_ONCE = 500
"""Lines that are rewritten as one text: fewer are slower, and with more it falls out of the cache."""


@dataclass(frozen=True, slots=True)
class HeldOut:
    """Where the keys of all pairs that are held out lie, and their SHA-256."""

    path: Path
    sha256: str
    symbols: frozenset[bytes] = frozenset()
    """Words that do not count where a source begins with them, such as the code of a language."""


def keys(lines: Sequence[bytes]) -> list[bytes]:
    """Of each line what two lines share that say the same; empty where there is nothing but punctuation.

    Many lines at once, as line by line takes several times as long; none may hold a line feed.
    """
    return [key for start in range(0, len(lines), AT_ONCE) for key in _keys(lines[start : start + AT_ONCE])]


def _keys(lines: Sequence[bytes]) -> list[bytes]:
    text = b"\n".join(lines).decode(errors="replace")
    if text.isascii():
        text = text.lower()
    else:
        text = text.casefold()
        for mark in MARKS:
            text = text.replace(mark, "")
        if not unicodedata.is_normalized("NFKC", text):
            text = unicodedata.normalize("NFKC", text)
    return text.encode().translate(None, ASCII).split(b"\n")


def _bare(lines: Iterable[bytes], symbols: Collection[bytes]) -> list[bytes]:
    """The lines without symbols at their beginning."""
    return [_without(line, symbols) for line in lines] if symbols else list(lines)


def _without(line: bytes, symbols: Collection[bytes]) -> bytes:
    while (words := line.split(maxsplit=1)) and words[0] in symbols:
        line = b"".join(words[1:])
    return line


def write(corpora: Iterable[Corpus], path: Path, symbols: Collection[bytes]) -> None:
    """Write the keys of all pairs of `corpora` to a file; for `symbols` see `HeldOut`."""
    with path.open("wb") as file:
        for corpus in corpora:
            for block in corpus.blocks(LINES_AT_ONCE):
                pairs = zip(keys(_bare(block.sources, symbols)), keys(block.targets), strict=True)
                file.writelines(b"%b\t%b\n" % pair for pair in pairs if any(pair))


def occurring(block: Block, held_out: HeldOut, by: str) -> set[int]:
    """Return the numbers of those pairs of the block that are held out `by` equal sides."""
    known, known_sources = _loaded(held_out)
    if not (known or known_sources):
        return set()
    targets = keys(block.targets)
    if by != "pair":
        sources = keys(_bare(block.sources, held_out.symbols))
        return {
            number
            for number, source, target in zip(count(block.first), sources, targets, strict=False)
            if (by != "target" and source in known_sources) or (by != "source" and target in known)
        }
    # Nearly no target is known: sources need not be looked at before.
    found = [place for place, target in enumerate(targets) if target in known]
    sources = keys(_bare([block.sources[place] for place in found], held_out.symbols))
    return {
        block.first + place
        for place, source in zip(found, sources, strict=True)
        if source in known[targets[place]]
    }


@cache
def _loaded(held_out: HeldOut) -> tuple[Mapping[bytes, frozenset[bytes]], frozenset[bytes]]:
    """Return the keys of the sources by that of their target, and alone; read once in each worker process."""
    found: dict[bytes, set[bytes]] = {}
    for line in held_out.path.read_bytes().split(b"\n")[:-1]:
        source, _, target = line.partition(b"\t")
        found.setdefault(target, set()).add(source)
    alone = frozenset[bytes]().union(*found.values()) - {b""}
    return {target: frozenset(sources) for target, sources in found.items() if target}, alone
