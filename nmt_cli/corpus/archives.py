"""Moses archives, as OPUS has them: a .zip with a file of either language, read without unpacking it."""

import stat
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from lzma import LZMAError
from pathlib import Path, PurePosixPath
from typing import BinaryIO, cast

from nmt_cli.corpus.files import blocks_of, count_lines_of, explained
from nmt_cli.errors import UserError
from nmt_cli.language import fits

SUFFIX = ".zip"
DENSEST = 200
"""Times that a text may be larger than its packed form: of text it is four, of a bomb a thousand."""

SMALL = 1 << 20
"""Bytes that are let be, however well they are packed."""

DAMAGE = (zipfile.BadZipFile, EOFError, zlib.error, LZMAError, NotImplementedError, RuntimeError, ValueError)
"""What `zipfile` raises where an archive is not what it says it is."""


def count(path: Path, languages: tuple[str, str]) -> int:
    """How many lines either file of the archive has; reads both."""
    counts = []
    with _opened(path) as archive:
        for info in _members(path, archive, languages):
            with _stream(archive, info) as stream:
                counts.append((count_lines_of(stream, f"{path}/{info.filename}"), info.filename))
    if counts[0][0] != counts[1][0]:
        told = ", ".join(f"{name} has {lines:,} lines" for lines, name in counts)
        raise UserError(f"{path}: {told}: they must match line for line.")
    if not counts[0][0]:
        raise UserError(f"{path}: {counts[0][1]} is empty; give an archive with at least one line.")
    return counts[0][0]


def blocks(path: Path, languages: tuple[str, str], size: int) -> Iterator[tuple[list[bytes], list[bytes]]]:
    """The lines of both files, `size` at a time."""
    with _opened(path) as archive:
        source, target = _members(path, archive, languages)
        with _stream(archive, source) as sources, _stream(archive, target) as targets:
            yield from zip(
                blocks_of(sources, f"{path}/{source.filename}", size),
                blocks_of(targets, f"{path}/{target.filename}", size),
                strict=True,  # `count` found them equally long
            )


def names(path: Path, languages: tuple[str, str]) -> tuple[str, str]:
    """What the two files are called in the archive."""
    with _opened(path) as archive:
        source, target = _members(path, archive, languages)
        return source.filename, target.filename


@contextmanager
def _opened(path: Path) -> Iterator[zipfile.ZipFile]:
    with explained(path):
        try:
            with zipfile.ZipFile(path) as archive:
                yield archive
        except DAMAGE as error:
            raise UserError(f"{path} is no sound zip archive ({error}); copy it again.") from error


def _stream(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> BinaryIO:
    return cast(BinaryIO, archive.open(info))


def _members(
    path: Path, archive: zipfile.ZipFile, languages: tuple[str, str]
) -> tuple[zipfile.ZipInfo, zipfile.ZipInfo]:
    source, target = (_member(path, archive, language) for language in languages)
    return source, target


def _member(path: Path, archive: zipfile.ZipFile, language: str) -> zipfile.ZipInfo:
    """The file that ends in the language's name, or else in one that fits it."""
    endings = [(info, PurePosixPath(info.filename).suffix[1:]) for info in archive.infolist()]
    found = [info for info, ending in endings if ending == language] or [
        info for info, ending in endings if ending and fits(ending, language)
    ]
    if len(found) != 1:
        told = ", ".join(info.filename for info in found[:5]) or "none"
        raise UserError(
            f"{path} should hold one file that ends in .{language}, but has {told}; unpack it, and give the "
            "files as SOURCE:TARGET."
        )
    _refuse_hostile(path, found[0])
    return found[0]


def _refuse_hostile(path: Path, info: zipfile.ZipInfo) -> None:
    name = PurePosixPath(info.filename)
    mode = info.external_attr >> 16
    packed, unpacked = info.compress_size, info.file_size
    problem = ""
    if name.is_absolute() or ".." in name.parts or "\\" in info.filename:
        problem = "has a name that leads out of the archive"
    elif mode and not stat.S_ISREG(mode) and stat.S_IFMT(mode):
        problem = "is a link or a device, and no file"
    elif info.flag_bits & 1:
        problem = "is encrypted"
    elif unpacked > SMALL and unpacked > DENSEST * packed:
        problem = f"would grow from {packed:,} to {unpacked:,} bytes, as no text does"
    if problem:
        raise UserError(f"{path}: {info.filename} {problem}; unpack what you trust, and name the files.")
