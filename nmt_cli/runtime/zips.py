"""Read zip files from outside. Each member is checked before it is used."""

import errno
import re
import stat
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from lzma import LZMAError
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory

from nmt_cli.errors import UserError
from nmt_cli.runtime.foreign_text import refuse_special

LOCAL_HEADER = b"PK\x03\x04"
DENSEST = 200
"""Maximum ratio of a member's size to its compressed size. Text has about 4, a zip bomb 1,000."""

SMALL = 1 << 20
"""Size in bytes up to which a member may have any ratio."""

DAMAGE = (zipfile.BadZipFile, EOFError, zlib.error, LZMAError, NotImplementedError, RuntimeError, ValueError)
"""Errors of `zipfile` for damaged or encrypted archives. bzip2 raises an `OSError` without a number, and
seeking to a negative place one with EINVAL."""


@contextmanager
def opened(path: Path) -> Iterator[zipfile.ZipFile]:
    """Yield an open zip file. Raise `UserError`, also within the block, if it is not a file or is damaged."""
    refuse_special(path)
    try:
        with zipfile.ZipFile(path) as archive:
            yield archive
    except (*DAMAGE, OSError) as error:
        if isinstance(error, OSError) and error.errno not in (None, errno.EINVAL):
            raise
        raise UserError(f"{path} is not a complete zip archive ({error}). Copy it again.") from error


@contextmanager
def unpacked(path: Path, names: re.Pattern[str]) -> Iterator[Path]:
    """Yield a temporary folder with the members of a zip file that have `names`.

    Raise `UserError` for a damaged file, and if such a member is hostile. The folder is gone after the block,
    so a `UserError` of the block names the zip file instead.
    """
    with TemporaryDirectory() as folder:
        with opened(path) as archive:
            needed = [info for info in archive.infolist() if names.fullmatch(info.filename)]
            refuse_hostile(path, needed)
            archive.extractall(folder, needed)
        try:
            yield Path(folder)
        except UserError as error:
            raise UserError(*(str(text).replace(folder, str(path)) for text in error.args)) from error


def check_whole(path: Path) -> None:
    """Raise `UserError` if a zip file is hostile or damaged. PyTorch does not compare CRC-32s."""
    with opened(path) as archive:
        refuse_hostile(path, archive.infolist())
        if damaged := archive.testzip():
            raise UserError(f"{path} is damaged (the CRC-32 of {damaged} is wrong). Copy it again.")


def refuse_hostile(path: Path, members: Sequence[zipfile.ZipInfo]) -> None:
    """Raise `UserError` for a member that could do harm: a path outside the archive, a link, a device, an
    encrypted file or a zip bomb.

    A bomb has more than `SMALL` bytes, and more than `DENSEST` times its compressed size. All members
    together must not be one either.
    """
    for info in members:
        name = PurePosixPath(info.filename)
        mode = info.external_attr >> 16
        compressed, size = info.compress_size, info.file_size
        problem = ""
        if name.is_absolute() or ".." in name.parts or "\\" in info.filename:
            problem = "has a name that points outside the archive"
        elif mode and not stat.S_ISREG(mode) and stat.S_IFMT(mode):
            problem = "is a link or a device, not a file"
        elif info.flag_bits & 1:
            problem = "is encrypted"
        elif size > max(SMALL, DENSEST * compressed):
            problem = f"would grow from {compressed:,} to {size:,} bytes, more than {DENSEST} times"
        if problem:
            raise UserError(
                f"{path}: {info.filename} {problem}. If you trust it, unpack it and name the files."
            )
    # Overlapping members share compressed bytes, so the total is checked too.
    if (total := sum(info.file_size for info in members)) > max(SMALL, DENSEST * path.stat().st_size):
        raise UserError(f"{path} would grow to {total:,} bytes, more than {DENSEST} times. It is a zip bomb.")
