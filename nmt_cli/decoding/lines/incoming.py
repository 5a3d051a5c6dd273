"""Bytes as they arrive, as lines."""

from codecs import BOM_UTF8
from collections.abc import Callable, Iterator

CHUNK = 1 << 16


def lines_of(read: Callable[[int], bytes]) -> Iterator[bytes]:
    """The lines as they arrive, without their ends; only a line feed ends a line.

    `read` waits for some bytes and gives what there is up to a number, nothing at the end. A byte-order mark
    at the start belongs to no line.
    """
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
