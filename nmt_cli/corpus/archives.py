"""Moses archives, as OPUS has them: a .zip with a file of either language, read without unpacking it."""

import zipfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import BinaryIO, cast

from nmt_cli.corpus.files import blocks_of, count_lines_of, explained
from nmt_cli.errors import UserError
from nmt_cli.language import fits
from nmt_cli.runtime.zips import opened, refuse_hostile

SUFFIX = ".zip"


def count(path: Path, languages: tuple[str, str]) -> int:
    """How many lines either file of the archive has; reads both."""
    counts = []
    with explained(path), opened(path) as archive:
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
    with explained(path), opened(path) as archive:
        source, target = _members(path, archive, languages)
        with _stream(archive, source) as sources, _stream(archive, target) as targets:
            yield from zip(
                blocks_of(sources, f"{path}/{source.filename}", size),
                blocks_of(targets, f"{path}/{target.filename}", size),
                strict=True,  # `count` found them equally long
            )


def names(path: Path, languages: tuple[str, str]) -> tuple[str, str]:
    """What the two files are called in the archive."""
    with explained(path), opened(path) as archive:
        source, target = _members(path, archive, languages)
        return source.filename, target.filename


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
    refuse_hostile(path, found)
    return found[0]
