"""Lines from bytes as they arrive."""

from codecs import BOM_UTF8
from collections.abc import Callable, Iterator

from nmt_cli.corpus.files import LONGEST_BYTES

CHUNK = 1 << 16


def lines_of(
    read: Callable[[int], bytes], too_long: Callable[[int], None], longest: int = LONGEST_BYTES
) -> Iterator[bytes]:
    """Yield lines without their ends as they arrive. Only a line feed ends a line.

    `read(n)` waits for input and returns at most `n` bytes. It returns no bytes at the end of the input. A
    byte-order mark at the start is dropped. For a line of more than `longest` bytes, this calls `too_long`
    with the line's number. If that returns, an empty line is yielded instead.
    """
    # Chunks are joined once per line. Appending each to the previous ones would take quadratic time.
    pieces: list[bytes] = []
    number, length, mark = 1, 0, BOM_UTF8
    while chunk := read(CHUNK):
        first, *rest = chunk.split(b"\n")
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
