"""Lines of bytes, read from a stream as they arrive."""

from codecs import BOM_UTF8
from collections.abc import Callable, Iterator

from nmt_cli.corpus.raw_files import LONGEST_BYTES

CHUNK = 1 << 16


def lines_of(
    read: Callable[[int], bytes], too_long: Callable[[int], None], longest: int = LONGEST_BYTES
) -> Iterator[bytes]:
    """Yield the lines of a stream without their ends, each as soon as it has arrived.

    read: `read(n)` waits, and returns 1 to n bytes, or none at the end.
    too_long: is called with the number, from 1, of a line of over `longest` bytes, which becomes an empty
        line.

    Only a line feed ends a line. A byte-order mark at the start is dropped.
    """
    # Chunks are joined once per line. Appending each to the previous ones would take quadratic time.
    pieces: list[bytes] = []
    number, length, mark = 1, 0, BOM_UTF8
    while chunk := read(CHUNK):
        first, *rest = chunk.split(b"\n")
        # True only for the chunk in which the line becomes too long, so that it is reported once.
        if length <= longest < length + len(first):
            pieces = []
            too_long(number)
        length += len(first)
        if length <= longest:
            pieces.append(first)
        if rest:
            yield b"".join(pieces).removeprefix(mark)
            yield from rest[:-1]
            pieces, mark = [rest[-1]], b""
            number, length = number + len(rest), len(rest[-1])
    if length:
        yield b"".join(pieces).removeprefix(mark)
