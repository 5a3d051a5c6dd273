"""Moses archives, as OPUS distributes them: a .zip with one file per language, read without unpacking."""

import zipfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from nmt_cli.corpus.files import blocks_of, count_lines_of, equal_count, explained
from nmt_cli.errors import UserError
from nmt_cli.language import fits
from nmt_cli.runtime.zips import opened, refuse_hostile

SUFFIX = ".zip"


def count(path: Path, languages: tuple[str, str]) -> int:
    """Return the number of lines of the two files of `languages` (source, target) in the archive. Raise
    `UserError` if the numbers differ or are 0, or if a file is missing."""
    names, counts = [], []
    with explained(path), opened(path) as archive:
        for info in [_member(path, archive, language) for language in languages]:
            names.append(f"{path}/{info.filename}")
            with archive.open(info) as stream:
                counts.append(count_lines_of(stream, names[-1]))
    return equal_count(names, counts)


def blocks(path: Path, languages: tuple[str, str], size: int) -> Iterator[tuple[list[bytes], list[bytes]]]:
    """Yield up to `size` source lines and their target lines at a time. Check the numbers of lines with
    `count` before, because different ones raise `ValueError` here."""
    with explained(path), opened(path) as archive:
        source, target = (_member(path, archive, language) for language in languages)
        with archive.open(source) as sources, archive.open(target) as targets:
            yield from zip(
                blocks_of(sources, f"{path}/{source.filename}", size),
                blocks_of(targets, f"{path}/{target.filename}", size),
                strict=True,
            )


def _member(path: Path, archive: zipfile.ZipFile, language: str) -> zipfile.ZipInfo:
    """Return the only file with the ending `language`, or else with another code for it, such as .deu for
    "de". Raise `UserError` if there is none, if there are several, or if the file is unsafe to read."""
    endings = [(info, PurePosixPath(info.filename).suffix[1:]) for info in archive.infolist()]
    members = [info for info, ending in endings if ending == language] or [
        info for info, ending in endings if ending and fits(ending, language)
    ]
    if len(members) != 1:
        listed = ", ".join(info.filename for info in members[:5]) or "none"
        raise UserError(
            f"{path} should hold one file that ends in .{language}, but has {listed}. Unpack it, and give "
            "the files as SOURCE:TARGET."
        )
    refuse_hostile(path, members)
    return members[0]
