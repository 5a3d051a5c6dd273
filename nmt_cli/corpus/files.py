"""Reading one raw file, plain or compressed, as bytes and as lines; every error names the file and the
cure."""

import bz2
import gzip
import lzma
import re
import sys
import zlib
from codecs import BOM_UTF8, BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader
from itertools import chain
from pathlib import Path
from typing import BinaryIO, cast

from nmt_cli.errors import UserError
from nmt_cli.runtime.hashes import sha256_of

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

COMPRESSIONS = (".gz", ".bz2", ".xz", ".zst")
UTF16_MARKS = (BOM_UTF16_LE, BOM_UTF16_BE)
GZIP_MARK = b"\x1f\x8b"
BZIP2_MARK = re.compile(rb"BZh[1-9](1A|\x17r)")
""""BZh" alone may begin a text, so this wants what follows too: the block size, and a block's or the end's
mark."""
BLOCK = 1 << 20
LINES_AT_ONCE = 1000

LONGEST_LINE = 1_000_000
"""Characters of a line, in a file of any kind. A longer one is not text and fills the memory."""

LONGEST_BYTES, MOST_BYTES_HELD = 4 * LONGEST_LINE, 1 << 28
"""Bytes of a line, and of all lines that are held at a time."""


@contextmanager
def open_bytes(path: Path) -> Iterator[BinaryIO]:
    """The content of `path`, decompressed if its first bytes say that it is compressed.

    Whatever goes wrong inside the `with` block while reading becomes a `UserError`.
    """
    with explained(path), path.open("rb") as raw, _unpacked(raw) as stream:
        yield stream


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turn what goes wrong while `path` is read into a `UserError`."""
    try:
        yield
    except (FileNotFoundError, NotADirectoryError) as error:
        raise UserError(f"{path}: there is no such file; check the path.") from error
    except IsADirectoryError as error:
        raise UserError(f"{path} is a directory; name the files in it.") from error
    except PermissionError as error:
        raise UserError(f"{path} can't be read: permission denied; check its owner and mode.") from error
    except EOFError as error:
        raise UserError(f"{path} is cut off: its compressed data ends too early; copy it again.") from error
    except (zlib.error, lzma.LZMAError, zstd.ZstdError, OSError) as error:
        # gzip and bz2 report damage as an OSError too, but without a number of the system.
        if isinstance(error, OSError) and error.errno:
            raise
        raise UserError(f"{path} is damaged ({error}); copy it again.") from error


def lines(path: Path) -> Iterator[bytes]:
    """Yield the lines of `path` without their ends. Only a line feed ends a line.

    A byte-order mark at the start and a carriage return before a line feed belong to no line.
    """
    return chain.from_iterable(blocks(path, LINES_AT_ONCE))


def blocks(path: Path, size: int, name: str = "") -> Iterator[list[bytes]]:
    """Yield what `lines` yields in lists of `size`. Messages call the file `name`."""
    with open_bytes(path) as stream:
        yield from blocks_of(stream, name or str(path), size)


def blocks_of(stream: BinaryIO, name: str, size: int) -> Iterator[list[bytes]]:
    """Yield the `blocks` of an open stream."""
    some: list[bytes] = []
    first, held = 1, 0
    for content in _whole_lines(stream, name):
        # Splitting many lines at once takes a fifth of the time that a call for each line does.
        some += content.replace(b"\r\n", b"\n").removesuffix(b"\n").split(b"\n")
        held += len(content)
        while len(some) >= size:
            yield some[:size]
            del some[:size]
            first, held = first + size, 0
        refuse_large(held, f"{name} lines {first:,} to {first + len(some) - 1:,}", MOST_BYTES_HELD)
    if some:
        yield some


def count_lines(path: Path, name: str = "") -> int:
    """Return how many lines `lines` yields, which is found faster."""
    with open_bytes(path) as stream:
        return count_lines_of(stream, name or str(path))


def count_lines_of(stream: BinaryIO, name: str) -> int:
    """Return the `count_lines` of an open stream."""
    return sum(content.count(b"\n") + (content[-1:] != b"\n") for content in _whole_lines(stream, name))


def _whole_lines(stream: BinaryIO, name: str) -> Iterator[bytes]:
    """Yield the content of a stream in pieces that end after a line."""
    number, rest = 1, b""
    block = _without_mark(stream.read(BLOCK), name)
    while block:
        end = block.find(b"\n")
        # Only a line that began in an earlier block can be too long: the limit is larger than a block.
        refuse_large(len(rest) + (len(block) if end < 0 else end), f"{name} line {number:,}")
        if end < 0:
            rest += block
        else:
            whole, _, after = block.rpartition(b"\n")
            yield rest + whole + b"\n"
            number, rest = number + block.count(b"\n"), after
        block = stream.read(BLOCK)
    if rest:
        yield rest


def refuse_large(length: int, place: str, limit: int = 0) -> None:
    """Raise `UserError` for text of more bytes than `limit`, or than a line may have (0)."""
    if length > (limit or LONGEST_BYTES):
        raise UserError(f"{place}: more than {limit or LONGEST_BYTES:,} bytes, the limit; split the text.")


def sha256(path: Path) -> str:
    """The SHA-256 of the file as it lies on disk."""
    with explained(path):
        return sha256_of(path)


def _unpacked(raw: BufferedReader) -> BinaryIO:
    start = raw.peek(6)  # by peeking, as a pipe can't be wound back
    if start.startswith(GZIP_MARK):
        return cast(BinaryIO, gzip.GzipFile(fileobj=raw))
    if BZIP2_MARK.match(start):
        return cast(BinaryIO, bz2.BZ2File(raw))
    if start.startswith(b"\xfd7zXZ\x00"):
        return cast(BinaryIO, lzma.LZMAFile(raw))
    if start.startswith(b"\x28\xb5\x2f\xfd"):
        return cast(BinaryIO, zstd.ZstdFile(raw))
    return raw


def _without_mark(line: bytes, name: str) -> bytes:
    if line.startswith(UTF16_MARKS):
        raise UserError(f"{name} is UTF-16; turn it into UTF-8 first (iconv -f UTF-16 -t UTF-8).")
    return line.removeprefix(BOM_UTF8)
