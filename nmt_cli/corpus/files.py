"""Reading of one raw file, plain or compressed, as bytes or as lines, and decoding of lines."""

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

from nmt_cli.errors import UserError, does_not_exist
from nmt_cli.runtime.hashes import sha256_of

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

COMPRESSIONS = (".gz", ".bz2", ".xz", ".zst")
UTF16_MARKS = (BOM_UTF16_LE, BOM_UTF16_BE)
GZIP_MARK = b"\x1f\x8b"
BZIP2_MARK = re.compile(rb"BZh[1-9](1A|\x17r)")
"""A text may begin with "BZh", so this also requires a block size and the mark of a block or of the end."""

ZSTD_MARK = re.compile(rb"\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18")
"""The mark of a frame, or of a skippable frame such as pzstd writes first."""

BLOCK = 1 << 20
LINES_AT_ONCE = 1000

LONGEST_LINE = 1_000_000
"""Maximum characters of a line in a file of any format. A longer line is not text and fills the memory."""

LONGEST_BYTES, MOST_BYTES_HELD = 4 * LONGEST_LINE, 1 << 28
"""Maximum bytes of a line, and of all lines in memory at a time."""


@contextmanager
def open_bytes(path: Path) -> Iterator[BinaryIO]:
    """Open `path` for reading in a `with` block. Decompress content that begins as gzip, bzip2, xz or zstd.
    Errors of reading in the block become `UserError`, as in `explained`."""
    with explained(path), path.open("rb") as raw, _decompressed(raw) as stream:
        yield stream


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turn errors of reading `path` in the `with` block into a `UserError`. These are a missing file, a
    directory, no permission, data cut off and other damage. Other system errors pass on."""
    try:
        yield
    except (FileNotFoundError, NotADirectoryError) as error:
        raise does_not_exist(path) from error
    except IsADirectoryError as error:
        raise UserError(f"{path} is a directory. Name the files in it.") from error
    except PermissionError as error:
        raise UserError(f"{path} can't be read: permission denied. Check its owner and mode.") from error
    except EOFError as error:
        raise UserError(f"{path} is cut off: its compressed data ends too early. Copy it again.") from error
    except (zlib.error, lzma.LZMAError, zstd.ZstdError, OSError) as error:
        # gzip and bz2 also report damage as an OSError, but without a system error number.
        if isinstance(error, OSError) and error.errno:
            raise
        raise UserError(f"{path} is damaged ({error}). Copy it again.") from error


def lines(path: Path) -> Iterator[bytes]:
    """Yield the lines of a plain or compressed file. Only a line feed ends a line. Remove line feeds, a
    carriage return before a line feed, and a byte-order mark. Raise `UserError` for a missing or damaged
    file, UTF-16, and lines of over `LONGEST_BYTES`."""
    return chain.from_iterable(blocks(path, LINES_AT_ONCE))


def blocks(path: Path, size: int, name: str = "") -> Iterator[list[bytes]]:
    """Yield the lines that `lines` yields, in lists of `size`. The last may be shorter. Messages name the
    file `name`, or `path` for "". Also raise `UserError` for a list of over `MOST_BYTES_HELD` bytes."""
    name = name or str(path)
    block: list[bytes] = []
    first, held_bytes = 1, 0
    for content in _whole_lines(path, name):
        # Splitting many lines in one call takes a fifth of the time of a call per line.
        block += content.replace(b"\r\n", b"\n").removesuffix(b"\n").split(b"\n")
        held_bytes += len(content)
        while len(block) >= size:
            yield block[:size]
            del block[:size]
            first, held_bytes = first + size, 0
        refuse_large(held_bytes, f"{name} lines {first:,} to {first + len(block) - 1:,}", MOST_BYTES_HELD)
    if block:
        yield block


def count_lines(path: Path, name: str = "") -> int:
    """Return the number of lines that `lines` yields. Messages call the file `name`, or `path` for ""."""
    contents = _whole_lines(path, name or str(path))
    return sum(content.count(b"\n") + (content[-1:] != b"\n") for content in contents)


def _whole_lines(path: Path, name: str) -> Iterator[bytes]:
    """Yield the content in large parts of whole lines. Only the last part may lack a line feed at its end.
    Remove a byte-order mark. Raise `UserError` for UTF-16 or a line of over `LONGEST_BYTES`."""
    number, partial = 1, b""
    with open_bytes(path) as stream:
        block = stream.read(BLOCK)
        if block.startswith(UTF16_MARKS):
            raise UserError(f"{name} is UTF-16. Turn it into UTF-8 first (iconv -f UTF-16 -t UTF-8).")
        block = block.removeprefix(BOM_UTF8)
        while block:
            end = block.find(b"\n")
            # Only a line that began in an earlier block can be too long: the limit is larger than a block.
            refuse_large(len(partial) + (len(block) if end < 0 else end), f"{name} line {number:,}")
            if end < 0:
                partial += block
            else:
                complete, _, after = block.rpartition(b"\n")
                yield partial + complete + b"\n"
                number, partial = number + block.count(b"\n"), after
            block = stream.read(BLOCK)
        if partial:
            yield partial


def decoded(raw: bytes, rule: str, location: str) -> str | None:
    """Return the line as text. If it is not UTF-8, `rule` decides. "error" raises `UserError`, beginning with
    `location`. "replace" inserts U+FFFD, and "skip" returns None."""
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        if rule == "error":
            raise UserError(
                f"{location}, byte {error.start + 1:,} (0x{raw[error.start]:02x}) is not UTF-8. Repair it, "
                "or choose --set corpus.invalid_utf8=replace or =skip."
            ) from error
        return None if rule == "skip" else raw.decode(errors="replace")


def refuse_large(length: int, location: str, limit: int = 0) -> None:
    """Raise `UserError`, beginning with `location`, for a `length` above `limit` (0: `LONGEST_BYTES`)."""
    if length > (limit or LONGEST_BYTES):
        raise UserError(f"{location}: more than {limit or LONGEST_BYTES:,} bytes, the limit. Split the text.")


def endings(path: Path) -> list[str]:
    """Return the last two endings of the name in lower case: .tsv and .gz for `corpus.tsv.gz`."""
    return [ending.lower() for ending in path.suffixes[-2:]]


def sha256(path: Path) -> str:
    """Return the SHA-256 of the file as stored, in hexadecimal. Raise `UserError` as `explained` does."""
    with explained(path):
        return sha256_of(path)


def _decompressed(raw: BufferedReader) -> BinaryIO:
    """Return a decompressed stream if `raw` begins as gzip, bzip2, xz or zstd, else `raw`."""
    start = raw.peek(6)  # not read, because a pipe can't seek back
    if start.startswith(GZIP_MARK):
        return cast(BinaryIO, gzip.GzipFile(fileobj=raw))
    if BZIP2_MARK.match(start):
        return cast(BinaryIO, bz2.BZ2File(raw))
    if start.startswith(b"\xfd7zXZ\x00"):
        return cast(BinaryIO, lzma.LZMAFile(raw))
    if ZSTD_MARK.match(start):
        return cast(BinaryIO, zstd.ZstdFile(raw))
    return raw
