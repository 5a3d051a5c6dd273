"""Reading of one raw file, plain or compressed, as bytes or as lines.

A pair must never be lost or shifted, so only a line feed ends a line. Other characters that some programs
take for line breaks are a part of the line.
"""

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
"""The first bytes of a bzip2 file. A text may also begin with "BZh", so the pattern requires a block size,
and the mark of a block or of the end."""

ZSTD_MARK = re.compile(rb"\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18")
"""The first bytes of a zstd file: those of a frame, or of a frame to skip, which pzstd writes first."""

BLOCK = 1 << 20
LINES_AT_ONCE = 1000

LONGEST_LINE = 1_000_000
"""The maximum number of characters of a line in any format. A longer line is not text, and fills the memory:
a line of 3 GB took 14.9 GB."""

LONGEST_BYTES, MOST_BYTES_HELD = 4 * LONGEST_LINE, 1 << 28
"""The maximum number of bytes of a line, and of all lines that are in memory at a time."""


@contextmanager
def open_bytes(path: Path) -> Iterator[BinaryIO]:
    """Open a file for reading in a `with` block. Content in gzip, bzip2, xz or zstd is decompressed. Its
    first bytes decide, not the name.

    Errors of opening and reading become `UserError`, also those that the block raises.
    """
    with explained(path), path.open("rb") as raw, _decompressed(raw) as stream:
        yield stream


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turn errors of reading `path` in the block into `UserError` with a remedy.

    These are a missing file, a directory, no permission, and content that is cut off or damaged. Other system
    errors pass unchanged.
    """
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
    """Yield the lines of a plain or compressed file, without line ends.

    Only a line feed ends a line. A carriage return before it, and a byte order mark at the start of the file,
    are removed. Raise `UserError` for a missing or damaged file, UTF-16, or a line of more than
    `LONGEST_BYTES` bytes.
    """
    return chain.from_iterable(blocks(path, LINES_AT_ONCE))


def blocks(path: Path, size: int, name: str = "") -> Iterator[list[bytes]]:
    """Yield the lines of a file, without line ends, in lists of `size`. The last list may be shorter.

    Messages call the file `name`, or `path` if `name` is "". Raise `UserError` for a missing or damaged file,
    UTF-16, a line of more than `LONGEST_BYTES` bytes, or a list of more than `MOST_BYTES_HELD` bytes.
    """
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
    """Return the number of lines in a file. Messages call the file `name`, or `path` if `name` is ""."""
    contents = _whole_lines(path, name or str(path))
    return sum(content.count(b"\n") + (content[-1:] != b"\n") for content in contents)


def _whole_lines(path: Path, name: str) -> Iterator[bytes]:
    """Yield the content of a file in large parts. Each part ends with a line feed, except perhaps the last
    one. A byte order mark is removed."""
    number, partial = 1, b""
    with open_bytes(path) as stream:
        block = stream.read(BLOCK)
        # UTF-16 has zero bytes and line feeds inside of characters, so its lines would be nonsense.
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
    """Decode a line. If it is not UTF-8, `rule` decides:

    - "error": raise `UserError`. The message begins with `location`.
    - "replace": replace invalid bytes by U+FFFD.
    - "skip": return None.
    """
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
    """Raise `UserError` if `length`, in bytes, is above `limit`. A `limit` of 0 means `LONGEST_BYTES`. The
    message begins with `location`."""
    if length > (limit or LONGEST_BYTES):
        raise UserError(f"{location}: more than {limit or LONGEST_BYTES:,} bytes, the limit. Split the text.")


def endings(path: Path) -> list[str]:
    """Return the last two endings of a file's name in lower case, such as [".tsv", ".gz"] for
    `corpus.tsv.gz`."""
    return [ending.lower() for ending in path.suffixes[-2:]]


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file as it is stored, in hexadecimal. Raise `UserError` if it cannot be
    read."""
    with explained(path):
        return sha256_of(path)


def _decompressed(raw: BufferedReader) -> BinaryIO:
    """Return a stream of the decompressed content of `raw`, or `raw` if it is not compressed."""
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
