"""Splits bytes into lines as they arrive."""

from codecs import BOM_UTF8
from collections.abc import Callable, Iterator

CHUNK = 1 << 16


def lines_of(read: Callable[[int], bytes]) -> Iterator[bytes]:
    """The lines as they arrive, without their ends; only a line feed ends a line.

    `read(n)` waits until there are some bytes and returns them, `n` at most; none at the end of the input. A
    byte-order mark at the start is dropped.
    """
    # Joined once a line is whole: adding each chunk to the text before would be quadratic on long lines.
    pieces: list[bytes] = []
    mark = BOM_UTF8
    while chunk := read(CHUNK):
        first, *rest = chunk.split(b"\n")
        pieces.append(first)
        if rest:
            yield b"".join(pieces).removeprefix(mark)
            yield from rest[:-1]
            pieces, mark = [rest[-1]], b""
    if last := b"".join(pieces):
        yield last.removeprefix(mark)
